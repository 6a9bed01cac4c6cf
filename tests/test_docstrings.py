"""The docstring of each public operation has its arguments, result and an example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

# `ops.nn`, `ops.numpy` and `ops.linalg` contain names of `ops`.
NAMESPACES = ("toolkit.ops", "toolkit.ops.image", "toolkit.random")


def public_functions(namespace: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the names and functions of toolkit that a namespace exports."""
    module = import_module(namespace)
    for name in dir(module):
        value = getattr(module, name)
        is_public = not name.startswith("_") and inspect.isfunction(value)
        if is_public and value.__module__.startswith("toolkit."):
            yield name, value


def missing_parts(function: Callable[..., Any]) -> list[str]:
    """Return the parts that the docstring of a function lacks."""
    text = inspect.getdoc(function) or ""
    _, _, arguments = text.partition("\nArgs:\n")
    documented = re.findall(r"(?m)^ {4}(\w+): ", re.split(r"\n\n", arguments)[0])
    signature = inspect.signature(function)
    missing = [name for name in signature.parameters if name not in documented]
    if signature.return_annotation != "None" and "\nReturns:\n" not in text:
        missing.append("Returns")
    if "\nExample:\n    >>> " not in text:
        missing.append("Example")
    return missing


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_docstrings_are_complete(namespace):
    missing = {name: missing_parts(f) for name, f in public_functions(namespace)}
    assert len(missing) > 10
    assert {name: parts for name, parts in missing.items() if parts} == {}


def test_missing_parts_are_found():
    def function(x: int, y: int) -> int:
        """Return x.

        Args:
            x: a number.
        """
        return x

    assert missing_parts(function) == ["y", "Returns", "Example"]
