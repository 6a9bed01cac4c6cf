"""Configuration of the Sphinx site: `sphinx-build -W docs build/docs`."""

from __future__ import annotations

import inspect
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import toolkit

HERE = Path(__file__).parent

project = "toolkit"
copyright = "the toolkit authors"
release = version = toolkit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "toolkit"
html_show_sourcelink = False
default_role = "code"
nitpicky = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "none"  # signatures show them, and Args describe them
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # the page of the base class shows them
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Call arguments", "params_style")]

# The pages of the reference: a namespace and its title.
NAMESPACES = {
    "toolkit": "Tensors, gradients and graphs",
    "toolkit.ops": "Operations, as in `keras.ops`",
    "toolkit.layers": "Layers",
    "toolkit.models": "Models",
    "toolkit.losses": "Losses",
    "toolkit.metrics": "Metrics",
    "toolkit.optimizers": "Optimizers",
    "toolkit.optimizers.schedules": "Learning rate schedules",
    "toolkit.callbacks": "Callbacks of `fit`",
    "toolkit.data": "Input pipelines",
    "toolkit.datasets": "Data sets",
    "toolkit.activations": "Activations",
    "toolkit.initializers": "Initializers",
    "toolkit.regularizers": "Regularizers",
    "toolkit.constraints": "Constraints",
    "toolkit.random": "Random numbers",
    "toolkit.saving": "Saving and loading",
    "toolkit.utils": "Helpers, as in `keras.utils`",
    "toolkit.preprocessing": "Images, texts and sequences",
    "toolkit.visualization": "Visualization",
    "toolkit.applications": "Applications",
    "toolkit.wrappers": "Estimators for scikit-learn",
    "toolkit.dtype_policies": "Dtype policies",
    "toolkit.distribution": "Distributed training",
    "toolkit.config": "Settings",
    "toolkit.tree": "Nested structures",
    "toolkit.errors": "Errors",
}


def public_names(namespace: str) -> dict[str, Any]:
    """Return the classes and functions of a namespace, by name."""
    module = import_module(namespace)
    listed = getattr(module, "__all__", None)
    names = [n for n in sorted(listed or dir(module)) if not n.startswith("_")]
    found = {name: getattr(module, name, None) for name in names}
    # Without `__all__`, a namespace exports only the names that it defines.
    home = "toolkit" if listed else namespace
    return {
        name: value
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isroutine(value))
        and getattr(value, "__module__", "").startswith(home)
    }


def reference_pages() -> dict[str, str]:
    """Return the page of each namespace; an object is only on one page."""
    pages: dict[str, str] = {}
    seen: set[int] = set()
    # Specific namespaces have priority over `toolkit`.
    for namespace in [*list(NAMESPACES)[1:], "toolkit"]:
        names = public_names(namespace)
        new = {name: value for name, value in names.items() if id(value) not in seen}
        seen.update(map(id, new.values()))
        pages[namespace] = reference_page(namespace, new)
    return pages


def reference_page(namespace: str, names: dict[str, Any]) -> str:
    """Return the page of a namespace: its names, by the file that defines them."""
    title = NAMESPACES[namespace].replace("`", "``")
    lines = [title, "=" * len(title), "", f".. currentmodule:: {namespace}", ""]
    homes = {name: getattr(value, "__module__", "") for name, value in names.items()}
    last = None
    for name in sorted(names, key=lambda name: (homes[name], name.lower())):
        if homes[name] != last:
            last = homes[name]
            lines += [*section(last), ""]
        is_class = inspect.isclass(names[name])
        lines += [f".. auto{'class' if is_class else 'function'}:: {namespace}.{name}"]
        lines += ["   :members:", ""] if is_class else [""]
    return "\n".join(lines)


def section(module: str) -> list[str]:
    """Return the heading for the names of a file: the start of its docstring."""
    words = (inspect.getdoc(import_module(module)) or module).splitlines()[0]
    words = re.split(r"[.:;](?:\s|$)", words)[0].replace("`", "``")
    return [words, "-" * len(words)]


def write_reference(app: Any) -> None:
    """Write the pages of the reference, which each build creates again."""
    folder = HERE / "reference"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pages = reference_pages()
    for namespace, text in pages.items():
        (folder / f"{namespace}.rst").write_text(text, "utf-8")
    toc = ["Reference", "=========", "", ".. toctree::", "   :maxdepth: 1", ""]
    (folder / "index.rst").write_text(
        "\n".join([*toc, *(f"   {n}" for n in NAMESPACES), ""])
    )


def literal_operators(
    app: Any, what: str, name: str, object: Any, options: Any, lines: list[str]
) -> None:
    """Escape `*` and `|` in sentences, which are not emphasis or substitution."""
    inside_example = False
    for i, line in enumerate(lines):
        inside_example = line.lstrip().startswith((">>>", "...")) or (
            inside_example and bool(line.strip())
        )
        if not inside_example:
            parts = re.split(r"(`[^`]*`)", line)
            parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
            lines[i] = "".join(parts)


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


def skip_of_others(
    app: Any, what: str, name: str, object: Any, skip: bool, options: Any
) -> bool | None:
    """Skip the methods that scikit-learn adds, which refer to its site."""
    home = getattr(object, "__module__", None) or ""
    return True if home.startswith("sklearn.") else None


def setup(app: Any) -> None:
    """Register the functions of this file with Sphinx."""
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-signature", signature_of_class)
    app.connect("autodoc-skip-member", skip_of_others)
    app.connect("autodoc-process-docstring", literal_operators, priority=400)
