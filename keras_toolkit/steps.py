"""Steps on lists of batches, as programs of toolkit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keras.src import tree

import toolkit
from keras_toolkit.core import convert_to_tensor
from toolkit import ops

Step = Callable[[Any], Any]


def compiled_step(
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

    def run(batches: tuple[Any, ...]) -> Any:
        return join_results([step(batch) for batch in batches])

    run.__name__ = getattr(step, "__name__", "step")
    function = toolkit.function(run, jit_compile="auto" if jit_compile else False)
    return lambda batches: function(tuple(map(to_tensors, batches)))


def to_tensors(batch: Any) -> Any:
    """Return a batch with its arrays as tensors; None and strings stay."""
    return tree.map_structure(_to_tensor, batch)


def _to_tensor(leaf: Any) -> Any:
    if leaf is None or getattr(getattr(leaf, "dtype", None), "kind", "") in "OSU":
        return leaf
    return convert_to_tensor(leaf)


def _last(results: list[Any]) -> Any:
    return results[-1]


def _rows(results: list[Any]) -> Any:
    if len(results) == 1:
        return results[0]
    return tree.map_structure(lambda *parts: ops.concatenate(parts), *results)
