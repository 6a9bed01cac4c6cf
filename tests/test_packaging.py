"""Tests of the repository: links, archives, commands and examples."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("toolkit", "keras_toolkit")
LINKS = ("backends", "layers", "optimizers", "data")
TEST_FILE = '''"""One test."""


def test_one() -> None:
    """Nothing to check."""
'''
EXAMPLES = (".py", ".sbatch", ".yaml", ".md", ".c", ".cpp", ".rs", ".go", ".mjs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

pytestmark = pytest.mark.skipif(
    not (ROOT / "backends").is_symlink(), reason="the links are in checkouts only"
)


def run(*command, cwd=ROOT):
    process = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def linked_project(tmp_path):
    """Create a project with our settings and links to a file that all tools reject."""
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    for link in LINKS:
        folder = tmp_path / "toolkit" / link
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text('"""A part."""\n')
        (folder / "test_part.py").write_text(TEST_FILE)
        (tmp_path / link).symlink_to(f"toolkit/{link}")
    (tmp_path / "keras_toolkit").mkdir()
    for package in PACKAGES:
        (tmp_path / package / "__init__.py").write_text('"""All parts."""\n')
    (tmp_path / "tests").mkdir()
    return tmp_path


# --- the links at the root ----------------------------------------------------------


@pytest.mark.parametrize("name", LINKS)
def test_link_is_relative(name):
    assert os.readlink(ROOT / name) == f"toolkit/{name}"


def test_nothing_is_imported_through_a_link():
    pattern = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(LINKS)})\b", re.MULTILINE)
    folders = (*PACKAGES, "tests", "examples", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [p for p in files if pattern.search(p.read_text("utf-8"))] == []


def test_linter_and_formatter_skip_the_links(linked_project):
    pytest.importorskip("ruff")
    files = run("ruff", "check", "--show-files", cwd=linked_project).splitlines()
    python = {
        str(path)
        for package in PACKAGES
        for path in (linked_project / package).rglob("*.py")
    }
    assert set(files) - {str(linked_project / "pyproject.toml")} == python
    formatted = run("ruff", "format", "--check", cwd=linked_project)
    assert formatted.startswith(f"{len(python)} files already formatted")


def test_type_checker_skips_the_links(linked_project):
    pytest.importorskip("mypy")
    # Each part is found once. Through a link it would have a second name, which is an
    # error.
    output = run("mypy", "--cache-dir", os.devnull, cwd=linked_project)
    assert f"{len(PACKAGES) + 2 * len(LINKS)} source files" in output


def test_test_collection_skips_the_links(linked_project):
    output = run("pytest", "--collect-only", "-q", cwd=linked_project)
    collected = [line for line in output.splitlines() if "::" in line]
    assert len(collected) == len(LINKS)
    assert all(line.startswith("toolkit/") for line in collected)


# --- source archive and wheel -------------------------------------------------------


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Return the member names of (sdist, wheel), built from the checkout."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run("hatchling", "build", "-d", str(folder))
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return names, set(wheel.namelist())


@pytest.mark.slow
def test_sdist_contains_sources_without_links(archives):
    sdist, _ = archives
    assert not [name for name in sdist if name.split("/")[0] in LINKS]
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True
    )
    files = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    assert "toolkit/layers/dense.py" in sdist
    assert files - sdist == set()


@pytest.mark.slow
def test_wheel_contains_only_packages_and_examples(archives):
    _, wheel = archives
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in ("toolkit", "keras_toolkit")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | {
        f"toolkit/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "examples").rglob("*")
        if path.suffix in EXAMPLES
    }
    assert {name for name in wheel if ".dist-info/" not in name} == expected
    assert "toolkit/py.typed" in wheel and "toolkit/__init__.pyi" in wheel
    assert "toolkit/datasets/digits.npz" in wheel
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


# --- the project file -----------------------------------------------------------------


def test_dependencies_are_ranges():
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    lists += PROJECT["dependency-groups"].values()
    every = [dependency for dependencies in lists for dependency in dependencies]
    assert all(">=" in dependency and "==" not in dependency for dependency in every)


def test_environments_of_developers_are_no_extras():
    extras, groups = PROJECT["project"]["optional-dependencies"], {"test", "docs"}
    assert groups <= PROJECT["dependency-groups"].keys()
    assert not [e for e in extras if e in groups or e.startswith(("ci", "dev"))]


def test_platform_classifiers_name_tested_systems():
    systems = [c for c in PROJECT["project"]["classifiers"] if c.startswith("Operat")]
    assert systems == ["Operating System :: POSIX :: Linux"]


def test_scripts_can_be_run():
    for name in (".ci/run", ".ci/full", "scripts/check", "scripts/test"):
        assert os.access(ROOT / name, os.X_OK), name
