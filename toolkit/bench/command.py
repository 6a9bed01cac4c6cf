"""Time training, prediction, start and memory on this machine.

Examples:
  $ toolkit bench --only tiny_mlp
  $ toolkit bench --rounds 3 --json record.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from toolkit.bench import suite
from toolkit.cli.overwriting import add_force_option, check_overwrite


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command, which are the options of the suite."""
    suite.add_options(parser)
    add_force_option(parser, "the record")


def run(options: argparse.Namespace) -> int:
    """Run the suite with toolkit only; return 1 if a case could not be measured."""
    if options.json:
        check_overwrite(options, Path(options.json))
    record = suite.run([suite.OURS], options)
    failures = suite.describe_failures(record)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return int(bool(failures))
