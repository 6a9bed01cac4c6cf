"""List the example trainers of the package, with a summary of each.

Examples:
  $ toolkit examples
  $ toolkit examples digits_cnn > digits_cnn.py
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

import toolkit
from toolkit.cli import one_of, program
from toolkit.errors import MissingFileError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the name of an example."""
    parser.add_argument(
        "name",
        nargs="?",
        type=one_of(*names()),
        metavar="NAME",
        help="print the source of this one instead, to begin one's own with",
    )


def run(options: argparse.Namespace) -> int:
    """Print the names and summaries, or the source of one example."""
    if options.name:
        print(path_of(options.name).read_text("utf-8"), end="")
        return 0
    known = names()
    width = max(map(len, known))
    for name in known:
        print(f"{name:{width}}  {summary(name)}")
    print(f"\n{program()} run NAME --help tells the arguments of one.")
    return 0


def names() -> list[str]:
    """Return the names of all examples; examples in folders are last."""
    files = [
        path.relative_to(folder()).with_suffix("")
        for path in folder().rglob("*.py")
        if not path.name.startswith("_")
    ]
    return [path.as_posix() for path in sorted(files, key=lambda p: (len(p.parts), p))]


def path_of(name: str) -> Path:
    """Return the file of an example."""
    return folder() / f"{name}.py"


def summary(name: str) -> str:
    """Return the first line of an example's docstring, without executing it."""
    text = ast.get_docstring(ast.parse(path_of(name).read_text("utf-8"))) or ""
    return text.partition("\n")[0]


def folder() -> Path:
    """Return the folder of the examples: in the package or the checkout."""
    package = Path(toolkit.__file__).parent
    for found in (package / "examples", package.parent / "examples"):
        if found.is_dir():
            return found
    raise MissingFileError(
        f"the examples are neither in {package} nor beside it; install the package anew"
    )
