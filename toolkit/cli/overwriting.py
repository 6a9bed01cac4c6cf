"""The option --force: commands replace an existing file only with it."""

from __future__ import annotations

import argparse
from pathlib import Path

from toolkit.errors import ArgumentError


def add_force_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add --force.

    Args:
        parser: of the command.
        name: the argument of the file, such as "TO".
    """
    parser.add_argument(
        "--force", action="store_true", help=f"replace {name} if it exists already"
    )


def check_overwrite(options: argparse.Namespace, *paths: Path) -> None:
    """Raise an error if a file exists and --force is absent.

    Args:
        options: of the command.
        *paths: the files to write.
    """
    for path in paths:
        if path.exists() and not options.force:
            raise ArgumentError(
                f"{str(path)!r} exists already; use --force to replace it"
            )
