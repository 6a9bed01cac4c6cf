"""Call of an ONNX operator: inputs, attributes and budget."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from toolkit.definitions.records import record
from toolkit.dtypes import numpy_dtype
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.ledger import MAX_STATIC_SIZE, Ledger, StaticLimitExceeded
from toolkit.models.importing.values import Value
from toolkit.reading.onnx.graph import OnnxGraph, OnnxNode
from toolkit.type_aliases import Array

_MISSING: Any = object()


class NeedsValuesError(UnsupportedError):
    """A shape depends on values that exist only at run time."""


@record
class Operator:
    """Operator of ONNX.

    Args:
        name: the name of the operator.
        function: a function of a Call and the inputs as Values (None if omitted) that
            returns a Value, or several.
        host: the positions of inputs that must be static, known before the graph runs.
        needs_data: whether the result depends on more than the inputs' shapes.
        has_graphs: whether its attributes contain graphs, which can read more values.
    """

    name: str
    function: Callable[..., Any]
    host: tuple[int, ...] = ()
    needs_data: bool = True
    has_graphs: bool = False

    @cached_property
    def counts(self) -> tuple[int, float]:
        """Return the minimum and the maximum number of inputs."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        single = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
        minimum = sum(p.default is p.empty for p in single)
        return minimum, math.inf if is_variadic else len(single)


class Call:
    """Node that is being run.

    Args:
        node: the node of the graph.
        opset: the version of its operators.
        ledger: the ledger of the budget.
        run: (graph, inputs) -> outputs, for graphs inside of the node.
        is_static: whether the results must be static, before the graph runs.
    """

    def __init__(
        self,
        node: OnnxNode,
        opset: int,
        ledger: Ledger,
        run: Callable[..., Any],
        is_static: bool,
    ) -> None:
        self.node, self.opset, self.run = node, opset, run
        self.outputs = len(node.outputs)
        self._ledger, self._is_static = ledger, is_static
        self._unread = set(node.attributes)

    def is_output_used(self, index: int) -> bool:
        """Return whether this output is used."""
        return index < self.outputs and bool(self.node.outputs[index])

    def finish(self) -> None:
        """Raise if the operator does not support an attribute."""
        if self._unread:
            raise UnsupportedError(
                f"{self.node.op} does not support the attributes {sorted(self._unread)}"
            )

    # --- attributes -------------------------------------------------------------------

    def _read(self, name: str, kinds: Any, default: Any, expected: str) -> Any:
        self._unread.discard(name)
        value = self.node.attributes.get(name, default)
        if value is _MISSING:
            raise ModelFileError(f"expected an attribute `{name}`, but it is missing")
        if value is not default and not isinstance(value, kinds):
            raise ModelFileError(
                f"expected {expected} as attribute `{name}`; received {value!r:.99}"
            )
        return value

    def integer(self, name: str, default: Any = _MISSING) -> Any:
        """Return an integer attribute."""
        return self._read(name, int, default, "an integer")

    def number(self, name: str, default: Any = _MISSING) -> Any:
        """Return a float attribute."""
        return self._read(name, (float, int), default, "a number")

    def text(self, name: str, default: Any = _MISSING) -> Any:
        """Return a string attribute."""
        return self._read(name, str, default, "a string")

    def array(self, name: str, default: Any = _MISSING) -> Any:
        """Return an array attribute."""
        return self._read(name, np.ndarray, default, "a tensor")

    def graph(self, name: str) -> OnnxGraph:
        """Return a graph attribute."""
        value: OnnxGraph = self._read(name, OnnxGraph, _MISSING, "a graph")
        return value

    def integers(self, name: str, default: Any = _MISSING) -> Any:
        """Return an attribute that is a list of integers, as a tuple."""
        return self._list(name, int, default, "integers")

    def numbers(self, name: str, default: Any = _MISSING) -> Any:
        """Return an attribute that is a list of numbers, as a tuple."""
        return self._list(name, (float, int), default, "numbers")

    def texts(self, name: str, default: Any = _MISSING) -> Any:
        """Return an attribute that is a list of strings, as a tuple."""
        return self._list(name, str, default, "strings")

    def _list(self, name: str, kinds: Any, default: Any, expected: str) -> Any:
        value = self._read(name, (list, tuple), default, expected)
        if value is default:
            return default
        if not all(isinstance(item, kinds) for item in value):
            raise ModelFileError(
                f"expected {expected} as attribute `{name}`; received {value!r:.99}"
            )
        return tuple(value)

    # --- inputs -----------------------------------------------------------------------

    def static_array(self, value: Value, name: str) -> Array:
        """Return the static array of an input that determines shapes of the results."""
        array = self.static_array_or_none(value)
        if array is None:
            raise NeedsValuesError(
                f"{name} is computed from data; a compiled function needs values "
                "that depend only on shapes and constants. Call the model outside of "
                "`toolkit.function`"
            )
        return array

    def static_array_or_none(self, value: Value) -> Array | None:
        """Return the static array of an input; None if it exists only at run time."""
        if value.static_array is not None:
            return value.static_array
        array = value.tensor.constant
        return None if array is None else np.asarray(array)

    def static_integers(self, value: Value, name: str) -> tuple[int, ...]:
        """Return the integers of a static input."""
        array = self.static_array(value, name)
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise ModelFileError(
                f"expected a list of integers as {name}; received {array.dtype} of "
                f"shape {array.shape}"
            )
        return tuple(int(n) for n in array.reshape(-1))

    def static_number(self, value: Value | None, default: Any, name: str) -> Any:
        """Return the only element of a static input; the default if it is omitted."""
        if value is None:
            return default
        array = self.static_array(value, name)
        if array.size != 1:
            raise ModelFileError(
                f"expected a single number as {name}; received shape {array.shape}"
            )
        return array.reshape(())[()].item()

    # --- budget -----------------------------------------------------------------------

    def loop(self, times: int) -> AbstractContextManager[None]:
        """Return the context of a loop with this trip count; raise above the limit."""
        return self._ledger.loop(times)

    def step(self, count: int = 1) -> None:
        """Count steps of a loop, or parts of a tensor, as nodes."""
        self._ledger.step(count)

    def work(self, *factors: int) -> None:
        """Count the multiplications of a node that runs before the graph.

        Args:
            *factors: the factors of the count.
        """
        if self._is_static:
            self._ledger.work(math.prod(factors))

    def allow(self, shape: Any, dtype: str) -> None:
        """Raise if a value of this shape would exceed the budget."""
        if any(n < 0 for n in shape):
            raise ModelFileError(f"expected extents >= 0; received {tuple(shape)}")
        size = math.prod(int(n) for n in shape)
        self._ledger.check(size * numpy_dtype(dtype).itemsize)
        if self._is_static and size > MAX_STATIC_SIZE:
            raise StaticLimitExceeded


def axis_of(axis: int, ndim: int) -> int:
    """Return an axis counted from the front."""
    if not -ndim <= axis < ndim:
        raise ModelFileError(f"expected an axis in [{-ndim}, {ndim}); received {axis}")
    return axis % ndim


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return distinct axes, counted from the front."""
    value = tuple(axis_of(int(axis), ndim) for axis in axes)
    if len(set(value)) != len(value):
        raise ModelFileError(f"expected distinct axes; received {tuple(axes)}")
    return value
