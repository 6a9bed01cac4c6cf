"""Trials: shape inference of a function by a call with example shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.compat.tensorflow.modes import set_run
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import no_trace
from toolkit.core.variable import Variable
from toolkit.errors import ShapeError
from toolkit.ir import Spec
from toolkit.random import SeedGenerator
from toolkit.type_aliases import Array, Shape, TensorLike


class Extents(KerasTensor):
    """A symbol of integers that depend only on shapes.

    Args:
        shape, dtype: of the symbol.
        at: the integers by the example extent that replaces dynamic extents.
    """

    def __init__(self, shape: Shape, dtype: Any, at: dict[int, Any]) -> None:
        super().__init__(shape, dtype)
        self.at = at


def evaluate_on_extents(function: Callable[..., Any], nest: Any) -> Array:
    """Return the function's value for arrays of extents, as arrays."""
    args, kwargs = nest
    with no_trace():
        result = function(*args, **kwargs)
    return tree.map_structure(
        lambda y: np.asarray(y) if isinstance(y, (Tensor, np.generic)) else y, result
    )


def are_extents(leaves: Iterable[Any]) -> bool:
    """Return whether there are leaves, all arrays of integers."""
    kinds = {leaf.dtype.kind if isinstance(leaf, np.ndarray) else "" for leaf in leaves}
    return bool(kinds) and kinds <= {"i", "u", "b"}


class Trial:
    """A function for a call with stand-ins in a probe trace, to infer its outputs.

    Args:
        function: of tensors; it can also use other tensors of the graph.
        args, kwargs: the recorded arguments.
    """

    function: Callable[..., Any]
    nest: tuple[Any, Any]

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.function, self.nest = function, (args, kwargs)
        self.__name__: str = function.__name__
        self.used: list[Any] = []  # symbols that are not arguments
        self._outputs_by_extent: dict[int, list[Any]] = {}
        self._probe: Any = None
        self._stand_ins: dict[Any, Any] = {}
        self._cells: dict[Any, Variable] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._probe, self._stand_ins, self._cells = state.trace, {}, {}
        symbols = tree.flatten(self.nest)
        values = tree.flatten((args, kwargs))
        pairs = [
            (x, self._extents_at(x) if isinstance(x, Extents) else value)
            for x, value in zip(symbols, values, strict=True)
        ]
        stand_in_pairs = [
            (x, value) for x, value in pairs if isinstance(x, KerasTensor)
        ]
        self._stand_ins = dict(stand_in_pairs)
        nest = tree.pack_sequence_as(self.nest, [value for _, value in pairs])
        draws = any(isinstance(value, SeedGenerator) for _, value in pairs)
        with set_run(self):
            result = None
            if not draws and are_extents(value for _, value in stand_in_pairs):
                result = evaluate_on_extents(self.function, nest)
            if result is None or not are_extents(tree.flatten(result)):
                result = self.function(*nest[0], **nest[1])
        self._outputs_by_extent[self._probe.extent] = tree.flatten(result)
        return result

    def _extents_at(self, x: Extents) -> Array:
        """Return the extents in this probe; request a second probe where they can
        differ."""
        self._probe.probed |= len(x.at) > 1
        if self._probe.extent in x.at:
            return x.at[self._probe.extent]
        if len(x.at) == 1:  # static: independent of dynamic extents
            return next(iter(x.at.values()))
        raise ShapeError(f"{x.name}: unknown for extents of {self._probe.extent}")

    def symbol(self, leaf: Any) -> Any:
        """Return the symbol of an output; an array that is not a tensor depends on
        extents."""
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return leaf
        (index,) = (
            i
            for i, output in enumerate(next(iter(self._outputs_by_extent.values())))
            if output is leaf
        )
        at = {
            extent: np.asarray(output[index])
            for extent, output in self._outputs_by_extent.items()
        }
        dtype = dtypes.name_of(leaf.dtype)
        shapes = [array.shape for array in at.values()]
        if len({len(shape) for shape in shapes}) > 1:
            raise ShapeError(f"{self.__name__}: the rank depends on an unknown extent")
        if len(set(shapes)) > 1:  # value-dependent extents cannot be a static shape
            extents = zip(*shapes, strict=True)
            return KerasTensor(
                [n if len({n, *m}) == 1 else None for n, *m in extents], dtype
            )
        return Extents(leaf.shape, dtype, at)

    # --- interface of a run -----------------------------------------------------------

    def value(self, x: TensorLike) -> Any:
        """Return the stand-in of a tensor of the graph that is not an argument."""
        if not isinstance(x, KerasTensor):
            return x
        if x not in self._stand_ins:
            if all(x is not other for other in self.used):
                self.used.append(x)
            self._probe.probed |= None in x.shape
            extents = (self._probe.extent if n is None else n for n in x.shape)
            stand_in = self._probe.placeholder(Spec(extents, str(x.dtype)))
            self._stand_ins[x] = (
                self._extents_at(x) if isinstance(x, Extents) else stand_in
            )
        return self._stand_ins[x]

    def values(self, nest: Any) -> Any:
        """Return a nest with the `value` of each leaf."""
        return tree.map_structure(self.value, nest)

    def cell(self, variable: Any) -> Variable:
        """Return a temporary Variable that replaces one of the graph in assignments."""
        if isinstance(variable, Variable):
            return variable
        if variable not in self._cells:
            if all(variable is not other for other in self.used):
                self.used.append(variable)
            zeros = np.zeros(variable.shape, dtypes.numpy_dtype(variable.dtype))
            self._cells[variable] = Variable(zeros, name="trial")
        return self._cells[variable]

    def is_initialized(self, variable: Any) -> bool:
        """Return True: the shape does not depend on it."""
        return True
