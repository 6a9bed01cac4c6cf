"""Run a script, or a trainer that comes with the package; what follows is for it.

With --processes so many run it as one job: `toolkit.distribution` says what they share.
It needs MPI: pip install 'toolkit[mpi]'.

Examples:
  $ toolkit run digits_cnn
  $ toolkit run digits_cnn --epochs 5
  $ toolkit run digits_cnn --help
  $ toolkit run --processes 2 train.py
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
from pathlib import Path

from toolkit.cli import one_of, program
from toolkit.cli.examples import names, path_of
from toolkit.cli.mpirun import command_of, environment_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """The script, its own arguments, and how many processes run it."""
    parser.add_argument(
        "--processes", type=_count, metavar="N", help="how many run it as one job"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="after which a job ends in which one process waits for another; 600",
    )
    parser.add_argument(
        "name",
        type=_script,
        metavar="NAME",
        help=f"path of a script, or of an example, see {program()} examples",
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="for the script"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number >= 1; received {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"expected seconds > 0; received {text!r}")
    return seconds


def _script(text: str) -> Path:
    """The path of a script, or that of an example by its name."""
    if text.endswith(".py") and Path(text).is_file():
        return Path(text)
    return path_of(one_of(*names())(text))


def run(options: argparse.Namespace) -> int:
    """Run it as Python runs a script, with its folder on the path."""
    path = options.name
    if options.processes is not None:
        command = command_of(options.processes, [str(path), *options.arguments])
        environment = environment_of(options.processes, options.timeout)
        return subprocess.run(command, env=environment).returncode
    before = sys.argv, sys.path
    sys.argv = [str(path), *options.arguments]
    sys.path = [str(path.parent), *sys.path]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv, sys.path = before
    return 0
