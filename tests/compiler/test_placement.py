"""Tests of placement on logical devices: transfers between them, and the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import op_names, target
from toolkit import ops
from toolkit.compiler.passes.placement import assign_devices
from toolkit.core.trace import Trace
from toolkit.errors import ArgumentError, DeviceError
from toolkit.ir import Spec


@pytest.fixture(autouse=True)
def two_devices():
    toolkit.config.set_logical_devices("cpu", 2)
    yield
    toolkit.config.set_logical_devices("cpu", 1)


def two_branches(a, b):
    with toolkit.device("cpu:1"):
        first = ops.exp(a)
        first = first * ops.tanh(first)
    second = ops.exp(b)
    return first + second


def traced(function, count=2):
    with Trace("test") as trace:
        inputs = [trace.placeholder(Spec((3,), "float32")) for _ in range(count)]
        outputs = function(*inputs)
    return trace.finish([outputs])


def test_transfers_are_inserted_between_devices():
    graph = assign_devices(traced(two_branches), target())
    graph.verify()
    names = ["transfer", "exp", "tanh", "multiply", "exp", "transfer", "add"]
    # The sum runs on the device of its first input, and its result is transferred back.
    names = [*names[:-2], "transfer", "add", "transfer"]
    assert op_names(graph) == names
    devices = [n.attrs["device"] for n in graph.nodes if n.op.name == "transfer"]
    assert devices == ["cpu:1", "cpu:1", "cpu:0"]


def test_one_transfer_serves_all_readers():
    def function(a):
        with toolkit.device("cpu:1"):
            return ops.exp(a) + ops.tanh(a)

    names = op_names(assign_devices(traced(function, 1), target()))
    assert names == ["transfer", "exp", "tanh", "add", "transfer"]


def test_graph_without_scopes_is_unchanged():
    graph = traced(lambda a, b: a + b)
    assert assign_devices(graph, target()) is graph


@pytest.mark.parametrize("jit_compile", [True, False])
def test_results_and_gradients_do_not_depend_on_devices(jit_compile):
    def step(a, b):
        with toolkit.GradientTape() as tape:
            tape.watch([a, b])
            y = two_branches(a, b)
        return y, *tape.gradient(y, [a, b])

    arrays = [np.random.default_rng(i).random(5000).astype("float32") for i in (0, 1)]
    actual = toolkit.function(step, jit_compile=jit_compile)(*arrays)
    toolkit.config.set_logical_devices("cpu", 1)
    single = toolkit.function(
        lambda a, b: ops.exp(a) * ops.tanh(ops.exp(a)) + ops.exp(b),
        jit_compile=jit_compile,
    )
    np.testing.assert_array_equal(actual[0].numpy(), single(*arrays).numpy())
    assert all(np.isfinite(y.numpy()).all() for y in actual)


def test_the_inspection_shows_transfers():
    step = toolkit.function(two_branches)
    text = str(step.inspect(ops.ones(3), ops.ones(3)))
    assert "transfer" in text
    assert "device=cpu:1" in text


def test_eager_results_have_a_device():
    with toolkit.device("cpu:1"):
        x = ops.ones(3)
    assert x.device == "cpu:1"
    assert (x + 1.0).device == "cpu:0"
    assert toolkit.config.list_devices() == ("cpu:0", "cpu:1")


def test_missing_devices_are_refused():
    with pytest.raises(DeviceError, match="one of cpu:0, cpu:1; received 'cpu:2'"):
        with toolkit.device("cpu:2"):
            pass
    with pytest.raises(ArgumentError, match="expected a number of devices"):
        toolkit.config.set_logical_devices("cpu", 0)
    with pytest.raises(ArgumentError, match="kind"):
        toolkit.config.set_logical_devices("tpu", 2)
