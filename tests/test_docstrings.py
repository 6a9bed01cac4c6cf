"""Docstrings of public objects have their arguments, result and an example."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import toolkit

DOCS = Path(toolkit.__file__).resolve().parents[1] / "docs"

# A limit this far above its count allows the count to grow again.
SLACK = 10
# Missing parts of the docstrings of classes and functions, by namespace. A namespace
# that is absent has none. A change may lower a number, not raise it.
MISSING: dict[str, int] = {}
# The same for methods, which need no example.
MISSING_OF_METHODS: dict[str, int] = {}

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="docs are in checkouts only")


@pytest.fixture(scope="module")
def names():
    """The module that lists the public names of the API reference."""
    path = list(sys.path)
    entries = runpy.run_path(str(DOCS / "conf.py"))["entries"]
    yield sys.modules[entries.__module__]
    sys.path[:] = path


def documented(text: str) -> set[str]:
    """Return the names that the sections of arguments describe."""
    described: set[str] = set()
    for section in re.split(r"(?m)^(?=(?:Args|Attributes|Call arguments):$)", text)[1:]:
        _, _, body = section.partition("\n")
        body = re.split(r"(?m)^(?=\S)", body)[0]
        for match in re.finditer(r"(?m)^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", body):
            described |= {name.strip("* ") for name in match[1].split(",")}
    return described


def missing_parts(value: Callable[..., Any], is_method: bool = False) -> list[str]:
    """Return the parts that the docstring of a class, function or method lacks.

    A method needs no example, and its summary may name the result.
    """
    text = inspect.cleandoc(value.__doc__ or "")
    is_class = inspect.isclass(value)
    if not text or (is_class and issubclass(value, BaseException)):
        return [] if text else ["summary"]
    signature = inspect.signature(value)
    kinds = {name: p.kind for name, p in signature.parameters.items() if name != "args"}
    needed = [
        n for n, kind in kinds.items() if kind is not inspect.Parameter.VAR_KEYWORD
    ]
    missing = sorted({*needed} - documented(text))
    has_result = signature.return_annotation not in ("None", None) and not is_class
    is_described = is_method and text.startswith(("Return ", "Yield ", "Raise"))
    if (
        has_result
        and not is_described
        and not re.search(r"(?m)^(Returns|Yields):$", text)
    ):
        missing.append("Returns")
    if not is_method and "\nExample:\n    >>> " not in text:
        missing.append("Example")
    return missing


def namespace_of(name: str) -> str:
    """Return the first two names of the module of a class, function or method."""
    modules = [word for word in name.split(".")[:-1] if word.islower()]
    return ".".join(modules[:2])


def count_missing(missing: dict[str, list[str]]) -> dict[str, int]:
    """Return the number of missing parts of each namespace."""
    counts: Counter[str] = Counter()
    for name, parts in missing.items():
        counts[namespace_of(name)] += len(parts)
    return {namespace: count for namespace, count in counts.items() if count}


def check(missing: dict[str, list[str]], limits: dict[str, int]) -> None:
    """Compare the missing parts of each namespace with its limit."""
    counts = count_missing(missing)
    above = {n for n, count in counts.items() if count > limits.get(n, 0)}
    assert {n: p for n, p in missing.items() if p and namespace_of(n) in above} == {}
    loose = {n for n, limit in limits.items() if limit > counts.get(n, 0) + SLACK}
    assert {n: counts.get(n, 0) for n in loose} == {}, (
        "lower the limits to these counts"
    )


def test_docstrings_of_classes_and_functions(names):
    values = {name: names.value_of(name) for name in names.entries()}
    missing = {
        n: missing_parts(value) for n, value in values.items() if callable(value)
    }
    assert len(missing) > 1000
    check(missing, MISSING)


def test_docstrings_of_methods(names):
    missing = {}
    for cls, name in names.documented_classes().items():
        for member in names.members(cls):
            value = inspect.getattr_static(cls, member)
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function):
                parts = missing_parts(function, is_method=True)
                bound = [*inspect.signature(function).parameters][:1]
                is_static = isinstance(value, staticmethod)
                unbound = [p for p in parts if is_static or p not in bound]
                missing[f"{name}.{member}"] = unbound
    assert len(missing) > 400
    check(missing, MISSING_OF_METHODS)


def test_missing_parts_are_found():
    def function(x: int, y: int, *z: int, **options: int) -> int:
        """Return x.

        Args:
            x: a number.
            *z: numbers.
        """
        return x

    assert missing_parts(function) == ["y", "Returns", "Example"]
    assert missing_parts(function, is_method=True) == ["y"]
