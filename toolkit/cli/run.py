"""Run a trainer that comes with the package; what follows its name is for it.

Examples:
  $ toolkit run digits_cnn
  $ toolkit run digits_cnn --epochs 5
  $ toolkit run digits_cnn --help
"""

from __future__ import annotations

import argparse
import runpy
import sys

from toolkit.cli import one_of, program
from toolkit.cli.examples import names, path_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """The example and its own arguments."""
    parser.add_argument(
        "name",
        type=one_of(*names()),
        metavar="NAME",
        help=f"of the example, see {program()} examples",
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="for the example"
    )


def run(options: argparse.Namespace) -> int:
    """Run it as Python runs a script, with its folder on the path."""
    path = path_of(options.name)
    before = sys.argv, sys.path
    sys.argv = [str(path), *options.arguments]
    sys.path = [str(path.parent), *sys.path]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv, sys.path = before
    return 0
