"""Configuration of the Sphinx site: `sphinx-build -W docs build/docs`."""

from __future__ import annotations

import inspect
import runpy
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import toolkit

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from api_names import documented_bases, entries  # noqa: E402
from api_reference import reference_pages, to_markup  # noqa: E402

project = "toolkit"
copyright = "the toolkit authors"
release = version = toolkit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build", "_templates"]
html_theme = "furo"
html_title = "toolkit"
html_show_sourcelink = False
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["reference.css", "site.css"]
html_search_scorer = str(HERE / "search_scorer.js")
default_role = "code"
nitpicky = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "none"  # signatures show them, and Args describe them
autodoc_member_order = "groupwise"
maximum_signature_line_length = 88
autodoc_inherit_docstrings = False  # the page of the base class shows them
napoleon_use_rtype = False
# A list of attributes without links: other classes have attributes of the same names.
napoleon_custom_sections = [
    ("Attributes", "params_style"),
    ("Call arguments", "params_style"),
    "Reference",
]
# A character of private use.
HIDDEN_COLON = "\ue000"
# Code up to this number of characters fits in a line of a telephone.
MAX_SHORT_CODE = 24


def write_reference(app: Any) -> None:
    """Write the pages of the reference, which each build creates again."""
    folder = HERE / "reference"
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in reference_pages().items():
        path = folder / f"{name}.rst"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def add_aliases(
    app: Any, what: str, name: str, object: Any, options: Any, lines: list[str]
) -> None:
    """Append the other public names of a class or function to its docstring."""
    if aliases := entries().get(name):
        text = ", ".join(f"``{alias}``" for alias in aliases)
        lines += ["", f"**Other names:** {text}", ""]


def show_bases(
    app: Any, name: str, object: Any, options: Any, bases: list[Any]
) -> None:
    """Show the bases of a class that the reference contains."""
    bases[:] = documented_bases(object)


def write_gallery(app: Any) -> None:
    """Write the pages of the examples; with `-t examples`, run each of them first."""
    notebooks = runpy.run_path(str(HERE.parent / "scripts" / "notebooks"))
    notebooks["build_all"](is_run=app.tags.has("examples"))


def convert_docstring(
    app: Any, what: str, name: str, object: Any, options: Any, lines: list[str]
) -> None:
    """Convert the formulas, operators and links of a docstring to reStructuredText.

    Napoleon takes the text before a colon for the type of a property.
    """
    lines[:] = to_markup(lines)
    if what in ("attribute", "property"):
        lines[:] = [line.replace(":", HIDDEN_COLON) for line in lines[:1]] + lines[1:]


def restore_colons(
    app: Any, what: str, name: str, object: Any, options: Any, lines: list[str]
) -> None:
    """Restore the colons of a property, after Napoleon."""
    lines[:] = [line.replace(HIDDEN_COLON, ":") for line in lines]


def signature_of_class(
    app: Any,
    what: str,
    name: str,
    object: Any,
    options: Any,
    signature: str,
    value: str,
) -> tuple[str, str] | None:
    """Return the arguments of a constructor, also of classes with `__new__`."""
    if what != "class":
        return None
    try:
        found = inspect.signature(object)
    except (TypeError, ValueError):
        return None
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty)), ""


def add_search_words(app: Any, doctree: Any) -> None:
    """Add the words of `search_words.toml` to the index of a page."""
    from docutils import nodes
    from sphinx import addnodes

    path = HERE / "search_words.toml"
    app.env.note_dependency(str(path))
    words = tomllib.loads(path.read_text("utf-8"))
    for number, word in enumerate(words.get(app.env.docname, ())):
        target = f"search-{number}"
        entry = ("single", word, target, "main", None)
        title = next(doctree.findall(nodes.title))
        title.parent.insert(1, nodes.target("", "", ids=[target]))
        title.parent.insert(1, addnodes.index(entries=[entry]))


def prepare_code(app: Any, doctree: Any) -> None:
    """Remove empty last lines of code blocks, and mark code without line breaks."""
    from docutils import nodes

    for block in doctree.findall(nodes.literal_block):
        if block.rawsource == block.astext():
            block.rawsource = block.rawsource.rstrip()
            block[:] = [nodes.Text(block.rawsource)]
    for code in doctree.findall(nodes.literal):
        if len(code.astext()) <= MAX_SHORT_CODE:
            code["classes"].append("short")


def setup(app: Any) -> None:
    """Register the functions of this file with Sphinx."""
    app.connect("builder-inited", write_reference)
    app.connect("builder-inited", write_gallery)
    app.connect("doctree-read", add_search_words)
    app.connect("doctree-read", prepare_code)
    app.connect("autodoc-process-signature", signature_of_class)
    app.connect("autodoc-process-bases", show_bases)
    app.connect("autodoc-process-docstring", convert_docstring, priority=400)
    app.connect("autodoc-process-docstring", restore_colons, priority=550)
    app.connect("autodoc-process-docstring", add_aliases, priority=600)
