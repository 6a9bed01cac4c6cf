"""`--import`: classes and functions of the user's own, which models in files may name.

It is the user who names the code that runs; a file of a model never can.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentTypeError, MissingFileError, ModelFileError
from toolkit.serialization import custom_object_scope


def add_import(parser: argparse.ArgumentParser) -> None:
    """The option `--import`."""
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module, or a file.py, with layers of your own that the model names; it "
        "is run; several times for several",
    )


def own_objects(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """A scope in which models may name what the modules of `--import` define."""
    return custom_object_scope(imported_objects(options))


def imported_objects(options: argparse.Namespace) -> dict[str, Any]:
    """The classes and functions that the modules of `--import` define, by name."""
    objects: dict[str, Any] = {}
    for name in options.modules:
        found = _run_file(Path(name)) if name.endswith(".py") else _import(name)
        objects |= {key: x for key, x in found.items() if callable(x)}
    return objects


def _run_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise MissingFileError(f"--import: there is no file {str(path)!r}")
    return runpy.run_path(str(path), run_name=path.stem)


def _import(name: str) -> dict[str, Any]:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: nothing in there replaces another module
    return vars(import_module(name))


def make(load: Callable[[bool], Any], compile: bool) -> Any:
    """The model that `load` makes.

    Raises:
        ModelFileError: it names something that is not there; the message says how to
            bring it.
    """
    try:
        return load(compile)
    except ArgumentTypeError as error:
        raise ModelFileError(f"{error}; for commands: --import FILE.py") from error
