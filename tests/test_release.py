"""Tests of the release: the name and version of the distribution, and its commands."""

import re
import runpy
import tomllib
import warnings
from pathlib import Path

import pytest

from toolkit import layers, release
from toolkit.release.deprecation import deprecated

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("toolkit", "keras_toolkit", "examples", "benchmarks", "tests", "docs")
FOLDERS += (".ci", "scripts", ".github")
TEXTS = {".py", ".md", ".pyi", ".yaml", ".yml", ".sbatch", ".toml", ".cff", ""}

needs_project = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="the project file is in checkouts"
)


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def text_files():
    """Yield the text files of the checkout, except this one, with their content."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in {*files, *ROOT.iterdir()} - {Path(__file__).resolve()}:
        is_generated = "reference" in path.relative_to(ROOT).parts
        if path.is_file() and path.suffix in TEXTS and not is_generated:
            try:
                yield path, path.read_text("utf-8")
            except UnicodeDecodeError:  # a binary file without a suffix
                continue


def requirements_with_extras(text):
    """Return (name, extras) of each `name[extras]` after `pip install`.

    The import name without extras also counts, because it is another distribution.
    """
    joined = re.sub(r"[\"']\n *f?[\"']", "", text)  # a message on two lines
    commands = re.findall(r"pip install([^\n`]*)", joined)
    pattern = re.compile(r"(?<![\w.\]\\-])([A-Za-z][\w-]*)\\?\[([\w, -]+)\\?\]")
    matches = [match for command in commands for match in pattern.findall(command)]
    bare = re.compile(r"(?<![\w./-])toolkit(?![\w./\[\\-])")
    return matches + [("toolkit", "") for c in commands if bare.search(c)]


@needs_project
def test_the_name_of_the_distribution_is_the_name_of_the_project():
    assert project()["name"] == release.DISTRIBUTION


@needs_project
def test_commands_name_the_distribution_and_existing_extras():
    extras = project()["optional-dependencies"].keys()
    wrong = []
    for path, text in text_files():
        for name, listed in requirements_with_extras(text):
            if name == "toolkit" or (
                name == release.DISTRIBUTION
                and not {extra.strip() for extra in listed.split(",")} <= extras
            ):
                wrong.append((path.relative_to(ROOT).as_posix(), f"{name}[{listed}]"))
    assert wrong == []


@needs_project
def test_install_commands_in_code_name_existing_extras():
    """A message has an extra of the project, or a list of them, as its argument."""
    extras = project()["optional-dependencies"].keys()
    pattern = re.compile(r"\b(?:install_command|requirement)\(['\"](\w+)['\"]\)")
    files = [*(ROOT / "toolkit").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    names = {n for path in files for n in pattern.findall(path.read_text("utf-8"))}
    assert {"mpi", "cuda13", "onnx"} <= names <= extras


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`pip install 'toolkit[mpi]'`", [("toolkit", "mpi")]),
        ("pip install toolkit[onnx]", [("toolkit", "onnx")]),
        ('python -m pip install "toolkit-nn[a,b]" c', [("toolkit-nn", "a,b")]),
        ('f"{x}: pip install "\n    "\'toolkit[mpi]\'"', [("toolkit", "mpi")]),
        (r"pip install 'toolkit\[mpi\]'", [("toolkit", "mpi")]),
        ('pip install ".[test]" keras-hub', []),
        ("pip install -U 'toolkit' numpy", [("toolkit", "")]),
        ("pip install toolkit-nn /toolkit ./toolkit toolkit_nn.whl", []),
    ],
)
def test_commands_are_found(text, expected):
    assert requirements_with_extras(text) == expected


# --- files for people and indexes -----------------------------------------------------


@needs_project
def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {release.VERSION}\n" in text
    assert f"license: {project()['license']}\n" in text


@needs_project
def test_the_changelog_has_the_version():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## ([\d.]+)", text, re.M)[0] == release.VERSION


@needs_project
def test_the_page_of_the_index_has_no_relative_links():
    pytest.importorskip("hatchling")
    convert = runpy.run_path(str(ROOT / "scripts" / "index_page.py"))["convert"]
    readme = (ROOT / "README.md").read_text("utf-8")
    for repository in (None, "https://example.org/toolkit"):
        text = convert(readme, repository)
        assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
        assert "[doi:10.24432/C50P49](https://doi.org/10.24432/C50P49)" in text
        assert text.count("```") == readme.count("```")


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        (None, "a b c\n\nd [e](https://f.org) [g](#h)"),
        (
            "https://r.org/x/",
            "a [b](https://r.org/x/blob/main/docs/b.md) c\n\n"
            "![p](https://r.org/x/raw/main/p.svg)\n\nd [e](https://f.org) [g](#h)",
        ),
    ],
)
@needs_project
def test_links_of_the_index_page(repository, expected):
    pytest.importorskip("hatchling")
    convert = runpy.run_path(str(ROOT / "scripts" / "index_page.py"))["convert"]
    text = "a [b](docs/b.md) c\n\n![p](p.svg)\n\nd [e](https://f.org) [g](#h)"
    assert convert(text, repository) == expected


# --- deprecated names -----------------------------------------------------------------


@deprecated("use `sum_of_squares`", since="0.2", removal="0.4")
def square_sum(values, *, start=0):
    """Return the sum of squares."""
    return start + sum(value**2 for value in values)


def test_a_deprecated_function_warns_and_works():
    expected = (
        "`square_sum` is deprecated since version 0.2, and version 0.4 removes it; "
        "use `sum_of_squares`"
    )
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(expected)}$") as caught:
        assert square_sum([1, 2], start=3) == 8
    assert [warning.filename for warning in caught] == [__file__]
    assert square_sum.__doc__ == "Return the sum of squares."


def test_a_deprecated_function_warns_once_a_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            square_sum([1])
    assert len(caught) == 1


def test_an_error_of_a_deprecated_function_is_unchanged():
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="begin"):
        square_sum([1], begin=1)


def test_names_that_keras_deprecates_have_no_removal():
    with pytest.warns(DeprecationWarning) as caught:
        layer = layers.LeakyReLU(alpha=0.25)
    message = str(caught[0].message)
    assert message == (
        "LeakyReLU: `alpha` is deprecated since version 0.1; use `negative_slope`"
    )
    assert layer.negative_slope == 0.25
