"""Steps on lists of batches, as programs of toolkit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from keras.src import tree

import toolkit
from keras_toolkit.core import convert_to_tensor
from toolkit import ops
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
    join_results = _last if join == "last" else _rows
    if run_eagerly:
        return lambda batches: join_results([step(to_tensors(b)) for b in batches])
    return CompiledSteps(step, join_results, "auto" if jit_compile else False)


class CompiledSteps:
    """A step on a list of batches as one program for each structure and signature.

    Args:
        step: the Python code, which is traced.
        join_results: makes one result of a list of them.
        jit_compile: as of `toolkit.function`.
    """

    def __init__(
        self, step: Step, join_results: Callable[[list[Any]], Any], jit_compile: Any
    ) -> None:
        self.step = step
        self.join_results = join_results
        self.jit_compile = jit_compile
        self._functions: dict[Any, Any] = {}

    def __call__(self, batches: Sequence[Any]) -> Any:
        """Run the step on each of the batches."""
        leaves, structure = _flatten(batches)
        function = self._functions.get(structure)
        if function is None:
            function = self._functions[structure] = self._compile(batches)
        return function(*leaves)

    def _compile(self, batches: Sequence[Any]) -> Any:
        structure = tree.map_structure(lambda leaf: None, list(batches))

        def run(*leaves: Any) -> Any:
            packed = tree.pack_sequence_as(structure, leaves)
            return self.join_results([self.step(batch) for batch in packed])

        run.__name__ = getattr(self.step, "__name__", "step")
        return toolkit.function(run, jit_compile=self.jit_compile)

    def __deepcopy__(self, memo: Any) -> CompiledSteps:
        """Copies begin without programs, which hold the Variables of the original."""
        step = deepcopy(self.step, memo)
        return CompiledSteps(step, self.join_results, self.jit_compile)


def _flatten(batches: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return the tensors of all batches, and a key for their structure."""
    leaves: list[Any] = []
    if len(batches) == 1 and type(batches[0]) is tuple:
        for leaf in batches[0]:
            if type(leaf) is not np.ndarray:
                break
            leaves.append(_to_tensor(leaf))
        else:
            return leaves, len(leaves)
    leaves = [_to_tensor(leaf) for leaf in tree.flatten(list(batches))]
    return leaves, str(tree.map_structure(lambda leaf: 0, list(batches)))


def to_tensors(batch: Any) -> Any:
    """Return a batch with its arrays as tensors; None and strings stay."""
    return tree.map_structure(_to_tensor, batch)


def _to_tensor(leaf: Any) -> Any:
    if type(leaf) is np.ndarray:
        return as_tensor(leaf)  # the step reads the memory of the array
    return leaf if leaf is None else convert_to_tensor(leaf)


def _last(results: list[Any]) -> Any:
    return results[-1]


def _rows(results: list[Any]) -> Any:
    if len(results) == 1:
        return results[0]
    return tree.map_structure(lambda *parts: ops.concatenate(parts), *results)
