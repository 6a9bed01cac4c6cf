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
from toolkit.cli import choice_type, program_name
from toolkit.errors import MissingFileError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the name of an example."""
    parser.add_argument(
        "name",
        nargs="?",
        type=choice_type(*list_examples()),
        metavar="NAME",
        help="print the source of this example, as a start for a new script",
    )


def run(options: argparse.Namespace) -> int:
    """Print the names and summaries, or the source of one example."""
    if options.name:
        print(example_path(options.name).read_text("utf-8"), end="")
        return 0
    names = list_examples()
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {read_summary(name)}")
    print(f"\n{program_name()} run NAME --help lists the arguments of an example.")
    return 0


def list_examples() -> list[str]:
    """Return the names of all examples; examples in folders are last."""
    files = [
        path.relative_to(examples_folder()).with_suffix("")
        for path in examples_folder().rglob("*.py")
        if not path.name.startswith("_")
    ]
    return [path.as_posix() for path in sorted(files, key=lambda p: (len(p.parts), p))]


def example_path(name: str) -> Path:
    """Return the file of an example."""
    return examples_folder() / f"{name}.py"


def read_summary(name: str) -> str:
    """Return the first line of an example's docstring, without executing it."""
    text = ast.get_docstring(ast.parse(example_path(name).read_text("utf-8"))) or ""
    return text.partition("\n")[0]


def examples_folder() -> Path:
    """Return the folder of the examples: in the package or the checkout."""
    package = Path(toolkit.__file__).parent
    for candidate in (package / "examples", package.parent / "examples"):
        if candidate.is_dir():
            return candidate
    raise MissingFileError(
        f"the examples are missing in {package} and in its parent folder; install "
        "the package again"
    )
