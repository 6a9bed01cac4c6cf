"""Steps on lists of batches, as programs of toolkit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from keras.src import tree

import toolkit
from keras_toolkit.core import convert_to_tensor
from toolkit import ops
from toolkit.core.tensor import Tensor, backend
from toolkit.errors import TraceError
from toolkit.models.training.arrays import as_tensor

Step = Callable[[Any], Any]


def make_step(
    step: Step, join: str, run_eagerly: bool, jit_compile: bool | str
) -> Callable[[Sequence[Any]], Any]:
    """Return a function that runs a step on each of a list of batches.

    Args:
        step: takes a batch of tensors and returns a structure of tensors.
        join: "last" returns the result of the last batch, "rows" all results, joined
            along the first axis.
        run_eagerly: whether to run the Python code on each batch.
        jit_compile: whether the program holds generated code, or kernels of NumPy only.
    """
    if run_eagerly:
        return lambda batches: run_steps(step, join, batches)
    return CompiledSteps(step, join, "auto" if jit_compile else False)


def run_steps(step: Step, join: str, batches: Sequence[Any]) -> Any:
    """Run the Python code of a step on each of the batches."""
    return _join(join, [step(to_tensors(batch)) for batch in batches])


class CompiledSteps:
    """A step on a list of batches, as one program for each signature.

    Args:
        step: the Python code, which is traced.
        join: as of `make_step`.
        jit_compile: as of `toolkit.function`.
    """

    def __init__(self, step: Step, join: str, jit_compile: Any) -> None:
        self.step = step
        self.join = join
        self.jit_compile = jit_compile
        self._functions: dict[Any, Any] = {}
        self._is_eager = False

    def __call__(self, batches: Sequence[Any]) -> Any:
        """Run the step on each of the batches, by one program if they are alike.

        A step that reads values of tensors cannot be traced. It runs operation by
        operation, after a warning.
        """
        if self._is_eager:
            return run_steps(self.step, self.join, batches)
        if len(batches) > 1 and not _have_equal_specs(batches):
            return _join(self.join, [self([batch]) for batch in batches])
        leaves, structure = _flatten(batches)
        key = len(batches), structure
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = self._compile(batches)
        try:
            return function(*leaves)
        except TraceError as error:  # no Variable has changed
            warnings.warn(
                f"{function.name}: the step runs operation by operation, which is "
                f"slow, because it cannot be traced: {error}",
                stacklevel=2,
            )
            self._is_eager = True
            return run_steps(self.step, self.join, batches)

    def _compile(self, batches: Sequence[Any]) -> Any:
        count = len(batches)
        structure = tree.map_structure(lambda leaf: None, batches[0])

        def run(*leaves: Any) -> Any:
            if count == 1:
                return self.step(tree.pack_sequence_as(structure, leaves))
            return self._scan(structure, leaves, count)

        run.__name__ = getattr(self.step, "__name__", "step")
        return toolkit.function(run, jit_compile=self.jit_compile)

    def _scan(self, structure: Any, leaves: Sequence[Any], count: int) -> Any:
        """Run the step in a loop over batches whose leaves are given one by one."""
        width = len(leaves) // count
        columns = [leaves[i::width] for i in range(width)]
        stacked = [ops.stack(c) for c in columns if c[0] is not None]

        def body(carry: Any, xs: Any) -> tuple[Any, Any]:
            tensors = iter(xs)
            row = [None if c[0] is None else next(tensors) for c in columns]
            result = self.step(tree.pack_sequence_as(structure, row))
            return carry, tree.map_structure(convert_to_tensor, result)

        _, results = ops.scan(body, (), stacked, length=count)
        if self.join == "last":
            return tree.map_structure(lambda y: y[-1], results)
        return tree.map_structure(lambda y: ops.reshape(y, (-1, *y.shape[2:])), results)

    def __deepcopy__(self, memo: Any) -> CompiledSteps:
        """Copy the function without its programs, which hold its Variables."""
        return CompiledSteps(deepcopy(self.step, memo), self.join, self.jit_compile)


def _have_equal_specs(batches: Sequence[Any]) -> bool:
    """Return whether all batches have the same structure, shapes and dtypes."""
    return len({str(tree.map_structure(_spec, batch)) for batch in batches}) == 1


def _spec(leaf: Any) -> str:
    return f"{getattr(leaf, 'shape', None)} {getattr(leaf, 'dtype', None)}"


def _flatten(batches: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return the tensors of all batches, and a key for their structure."""
    leaves: list[Any] = []
    if len(batches) == 1 and type(batches[0]) is tuple:
        asarray = backend().memory.asarray
        for leaf in batches[0]:
            if type(leaf) is not np.ndarray or leaf.dtype.kind not in "biuf":
                break
            leaves.append(Tensor(asarray(leaf)))  # the step reads the same memory
        else:
            return leaves, len(leaves)
    leaves = [_to_tensor(leaf) for leaf in tree.flatten(list(batches))]
    return leaves, str(tree.map_structure(lambda leaf: 0, batches[0]))


def to_tensors(batch: Any) -> Any:
    """Return a batch with its arrays as tensors; None and strings stay."""
    return tree.map_structure(_to_tensor, batch)


def _to_tensor(leaf: Any) -> Any:
    if type(leaf) is np.ndarray:
        return as_tensor(leaf)  # the step reads the memory of the array
    return leaf if leaf is None else convert_to_tensor(leaf)


def _join(join: str, results: list[Any]) -> Any:
    if join == "last" or len(results) == 1:
        return results[-1]
    return tree.map_structure(lambda *arrays: ops.concatenate(arrays), *results)
