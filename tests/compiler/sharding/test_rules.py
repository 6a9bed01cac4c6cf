"""Tests of the axis rule of every operation: ranks agree with one process."""

from typing import NamedTuple

import numpy as np
import pytest

from tests.compiler.sharding.virtual import Split, run, run_on_ranks
from tests.ops.samples import SAMPLES
from tests.ops.table import Sample
from toolkit import ops, tree
from toolkit.autodiff.tape import GradientTape
from toolkit.core.tensor import Tensor
from toolkit.core.trace import Trace
from toolkit.errors import ToolkitError

RANKS = 2, 3, 4


class Case(NamedTuple):
    """One distribution of the inputs of a row over a number of ranks."""

    row: Sample
    layouts: tuple[Split | None, ...]
    ranks: int

    @property
    def name(self):
        return self.row.name

    def __str__(self):
        axes = [split and split.axis for split in self.layouts]
        return f"{self.row}, axes {axes} over {self.ranks} ranks"


def traced(row, gradient):
    """The graph of a row, or of its gradients, and the arrays that it takes."""
    leaves = tree.flatten(row.inputs)
    arrays = [x for x in leaves if isinstance(x, np.ndarray)]
    arrays = [x.astype("float32") if x.dtype.kind == "f" else x for x in arrays]
    with Trace("test") as trace:
        placeholders = [
            trace.placeholder(ops.convert_to_tensor(x).spec) for x in arrays
        ]
        operands = iter(placeholders)
        inputs = [next(operands) if isinstance(x, np.ndarray) else x for x in leaves]
        inputs = tree.pack_sequence_as(row.inputs, inputs)
        with GradientTape() as tape:
            tape.watch([x for x in placeholders if x.dtype == "float32"])
            outputs = row.call(*inputs)
        results = [y for y in tree.flatten(outputs) if isinstance(y, Tensor)]
        if gradient:
            sources = [x for x in placeholders if x.dtype == "float32"]
            targets = [y for y in results if y.dtype == "float32"]
            random = np.random.default_rng(0)
            weights = [
                ops.convert_to_tensor(random.random(y.shape, "f4")) for y in targets
            ]
            gradients = tape.gradient(targets, sources, weights)
            results = [g for g in gradients if g is not None]
    arrays = [np.asarray(ops.convert_to_tensor(x)) for x in arrays]
    return trace.finish(results), arrays


def cases(gradient):
    """Each row with each axis of each of its inputs, and all leading axes at once."""
    for number, row in enumerate(SAMPLES):
        if not row.traced or (gradient and not row.order):
            continue
        arrays = [x for x in tree.flatten(row.inputs) if isinstance(x, np.ndarray)]
        choices = [
            tuple(Split(axis) if i == j else None for j in range(len(arrays)))
            for i, array in enumerate(arrays)
            for axis in range(array.ndim)
            if array.shape[axis] > 1
        ]
        leading = tuple(Split(0) if x.ndim and len(x) > 1 else None for x in arrays)
        if len({len(x) for x, s in zip(arrays, leading, strict=True) if s}) == 1:
            choices.append(leading)
        for i, layouts in enumerate(dict.fromkeys(choices)):
            yield Case(row, layouts, RANKS[(number + i) % 3])


def check(case, gradient):
    try:
        graph, arrays = traced(case.row, gradient)
    except (ToolkitError, ValueError, TypeError) as error:
        pytest.skip(f"not in a trace: {error}")
    if not graph.outputs:
        pytest.skip("nothing to compute")
    expected = run(graph, arrays)
    for outputs, _ in run_on_ranks(graph, arrays, case.layouts, case.ranks, leaves=4):
        for y, result in zip(expected, outputs, strict=True):
            assert (y.shape, y.dtype) == (result.shape, result.dtype)
            if y.dtype.kind in "fc":
                scale = np.abs(y[np.isfinite(y)]).max(initial=1e-30)
                np.testing.assert_allclose(result, y, 2e-5, 2e-5 * float(scale) + 1e-6)
            else:
                np.testing.assert_array_equal(result, y)


@pytest.mark.cases("case", list(cases(False)))
@pytest.mark.one_in(16)
def test_ranks_match_one_process(case):
    check(case, gradient=False)


@pytest.mark.cases("case", list(cases(True)))
@pytest.mark.one_in(16)
def test_gradients_of_ranks_match_one_process(case):
    check(case, gradient=True)
