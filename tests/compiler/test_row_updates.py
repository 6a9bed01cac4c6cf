"""Tests of updates of rows that a compiled program writes to a Variable in place."""

from __future__ import annotations

import numpy as np
import pytest

from toolkit import ops
from toolkit.core.tensor import bind
from toolkit.core.variable import Variable
from toolkit.errors import OutOfRangeError
from toolkit.functions.decorator import function
from toolkit.ops.index import scatter_p

pytest.importorskip("llvmlite")


def rows_of(v, i):
    return ops.take(v, i, axis=0)


def update(v, i, rows, mode="set"):
    return v.assign(bind(scatter_p, v.read(), i, rows, axis=0, mode=mode))


def put_row(v, i, box):
    """Write a box at (i[0], 1), moved inside if it is out of range."""
    return v.assign(ops.slice_update(v.read(), (i[0], 1), box))


# A step on a Variable v, another Variable, and indices; whether the rows of v are
# updated in place, without a full copy.
STEPS = {
    "rows": (lambda v, w, i: update(v, i, rows_of(v, i) * 2.0), True),
    "sums": (lambda v, w, i: update(v, i, rows_of(v, i) * 2.0, "add"), True),
    "rows of another": (lambda v, w, i: update(v, i, rows_of(w, i)), True),
    "unchecked": (lambda v, w, i: update(v, i, ops.tanh(w.read())), False),
    "other indices": (lambda v, w, i: update(v, i, rows_of(v, i[::-1])), False),
    "all of itself": (
        lambda v, w, i: (w.assign(rows_of(w, i) * 2.0), update(v, i, v.read())),
        False,
    ),
    "new ones are read": (
        lambda v, w, i: (update(v, i, rows_of(v, i) * 2.0), w.assign(v + 1.0)),
        True,
    ),
    "old ones are read": (
        lambda v, w, i: w.assign(v.read() * update(v, i, rows_of(v, i) * 2.0)),
        False,
    ),
    "box": (lambda v, w, i: put_row(v, i, w[:2, :1] * 2.0), True),
    "box that is read": (
        lambda v, w, i: w.assign(ops.exp(put_row(v, i, w[:2, :1]))),
        True,
    ),
    "box of its own": (lambda v, w, i: put_row(v, i, v[:2, :1] * 2.0), True),
    "box that is a view": (lambda v, w, i: put_row(v, i, v[:2, :2]), False),
    "box, then old ones": (
        lambda v, w, i: w.assign(v.read() * put_row(v, i, w[:2, :1])),
        False,
    ),
    "twice": (
        lambda v, w, i: (
            update(v, i, rows_of(v, i) * 2.0),
            update(v, i[::-1], rows_of(v, i[::-1]) + 1.0),
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_rows_are_updated_in_place(name):
    rule, in_place = STEPS[name]
    start = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
    values_by_mode = []
    for wrap in (lambda step: step, function):
        v, w = Variable(start), Variable(start.T.copy())
        # The results are discarded, because a returned value is copied.
        step = wrap(lambda i, v=v, w=w: [rule(v, w, i)].clear())
        for i in ([3, 1, 1, -1], [0, 2, 0, 0]):
            step(ops.convert_to_tensor(i))
        values_by_mode.append([v.numpy(), w.numpy()])
    for eager, compiled in zip(*values_by_mode, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-6)
    concrete = step.get_concrete_function(ops.convert_to_tensor([0] * 4))
    graph = concrete.program.graph
    outputs = zip(
        concrete.written_variables, graph.outputs[concrete.num_outputs :], strict=True
    )
    (new,) = (y for variable, y in outputs if variable is v)
    names = "scatter", "dynamic_update_slice"
    assert (graph.producers()[new].op.name in names) == in_place
    assert concrete.program.in_place


def test_a_row_out_of_range_changes_no_variable():
    v, count = Variable(np.ones((4, 2), "float32")), Variable(0.0)

    @function
    def step(i):
        count.assign(count + 1.0)
        update(v, i, ops.zeros((2, 2)))

    with pytest.raises(OutOfRangeError, match="4"):
        step(ops.convert_to_tensor([1, 4]))
    np.testing.assert_array_equal(v, np.ones((4, 2)))
    assert float(count) == 0
