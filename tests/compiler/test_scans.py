"""Scans stack each value once, and only what something reads."""

from __future__ import annotations

import numpy as np

import toolkit
from toolkit import ops
from toolkit.compiler.scans import tidy_scans
from toolkit.ir import Spec
from toolkit.tensor import backend
from toolkit.trace import Trace


def wasteful(x):
    def body(carry, x_t):
        following = carry + x_t
        return following, (following, following, x_t, following * 2.0)

    last, (first, again, read, _) = toolkit.ops.scan(body, ops.zeros(3), x)
    return last, first, again, read


def test_what_is_stacked_twice_read_or_unread_is_not_stacked():
    with Trace("test") as trace:
        x = trace.placeholder(Spec((4, 3), "float32"))
        outputs = wasteful(x)
    graph = trace.finish(list(outputs))
    tidy = tidy_scans(graph, backend())
    tidy.verify()
    (scan,) = (node for node in tidy.nodes if node.op.name == "scan")
    assert len(scan.outputs) == 2
    array = np.arange(12, dtype="float32").reshape(4, 3)
    sums = np.cumsum(array, axis=0)
    found = toolkit.function(wasteful)(array)
    for a, b in zip(found, (sums[-1], sums, sums, array), strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


def test_a_recurrent_layer_keeps_no_value_twice():
    model = toolkit.Sequential([toolkit.Input((5, 3)), toolkit.layers.LSTM(4)])
    model.compile("sgd", "mse")
    x, y = np.zeros((8, 5, 3), "float32"), np.zeros((8, 4), "float32")
    graph = model.inspect(x, y).graph if model.fit(x, y, verbose=0) else None
    scans = [node for node in graph.nodes if node.op.name == "scan"]
    assert len(scans) == 2
    for node in scans:
        stacked = node.attrs["body"].outputs[node.attrs["carry"] :]
        assert len({id(value) for value in stacked}) == len(stacked)
