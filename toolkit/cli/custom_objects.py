"""`--import`: custom classes and functions of the user, for models in files.

Only the user names code to run; a model file cannot.
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


def add_import_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--import`."""
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module or a file.py with custom layers of the model; it runs, and the "
        "option can occur several times",
    )


def custom_objects_scope(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return a scope in which models can refer to objects of the `--import` modules."""
    return custom_object_scope(import_objects(options))


def import_objects(options: argparse.Namespace) -> dict[str, Any]:
    """Return the classes and functions of the `--import` modules, by name."""
    objects: dict[str, Any] = {}
    for name in options.modules:
        namespace = (
            _run_file(Path(name)) if name.endswith(".py") else _import_module(name)
        )
        objects |= {key: value for key, value in namespace.items() if callable(value)}
    return objects


def _run_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise MissingFileError(f"--import: there is no file {str(path)!r}")
    return runpy.run_path(str(path), run_name=path.stem)


def _import_module(name: str) -> dict[str, Any]:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that it shadows no other module
    return vars(import_module(name))


def load_model_with_hint(load: Callable[[bool], Any], compile: bool) -> Any:
    """Return the model that `load` creates.

    Raises:
        ModelFileError: the model refers to a missing object; the message explains
            `--import`.
    """
    try:
        return load(compile)
    except ArgumentTypeError as error:
        raise ModelFileError(f"{error}; for commands: --import FILE.py") from error
