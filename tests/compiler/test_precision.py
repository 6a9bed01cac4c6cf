"""Tests of bfloat16 and float16 in programs: widened, in one, close to float32."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.compiler.graphs import op_names, target
from toolkit import dtypes, layers, ops
from toolkit.backends.numpy.jit.math.narrow import is_narrow
from toolkit.backends.numpy.precision import widen
from toolkit.core.trace import Trace
from toolkit.ir import Spec

narrow_dtypes = pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
needs_conversions = pytest.mark.skipif(
    not is_narrow("float16"), reason="needs instructions that convert float16"
)


@needs_conversions
@narrow_dtypes
def test_only_inputs_and_outputs_stay_narrow(narrow):
    with Trace("test") as trace:
        x = trace.placeholder(Spec((4,), narrow))
        y = ops.exp(x) * ops.cast(2.5, narrow)
    graph = widen(trace.finish([y]), target())
    graph.verify()
    assert op_names(graph) == ["cast", "exp", "multiply", "cast"]
    assert [v.spec.dtype for v in (*graph.inputs, *graph.outputs)] == [narrow] * 2
    inner = {n.outputs[0].spec.dtype for n in graph.nodes[:-1]}
    assert inner == {"float32"}


@needs_conversions
@narrow_dtypes
def test_elements_that_nothing_computes_with_stay_narrow(narrow):
    with Trace("test") as trace:
        table = trace.placeholder(Spec((90, 4), narrow))
        rows = ops.take(table, np.arange(3), axis=0)
        moved = ops.concatenate([ops.flip(table, 1), table])
        y = ops.exp(rows)
    graph = widen(trace.finish([y, moved]), target())
    graph.verify()
    casts = [n.inputs[0].spec.shape for n in graph.nodes if n.op.name == "cast"]
    assert casts == [(3, 4), (3, 4)]


@narrow_dtypes
def test_replaced_elements_are_rounded_as_eager_ones(narrow):
    cache = ops.cast(np.linspace(-3, 3, 600).reshape(150, 4), narrow)

    def step(cache, x, i):
        new = ops.slice_update(cache, (i, 0), ops.cast(ops.exp(x), narrow))
        return new, ops.sum(ops.cast(new, "float32"))

    x = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    compiled, eager = toolkit.function(step), step(cache, ops.convert_to_tensor(x), 9)
    for actual, expected in zip(compiled(cache, x, 9), eager, strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(
            ops.cast(actual, "float32").numpy(), ops.cast(expected, "float32").numpy()
        )


@narrow_dtypes
@pytest.mark.parametrize("shape", [(300, 400), (7,)])
@pytest.mark.parametrize(
    "name", ["add", "multiply", "divide", "maximum", "greater", "subtract"]
)
def test_single_operations_round_once(narrow, name, shape):
    random = np.random.default_rng(0)
    x, y = (
        (random.normal(size=shape) * 10 ** random.uniform(-6, 4, shape)).astype(
            dtypes.numpy_dtype(narrow)
        )
        for _ in range(2)
    )
    with np.errstate(all="ignore"):
        wide = getattr(np, name)(x.astype("float32"), y.astype("float32"))
        expected = wide if wide.dtype == bool else wide.astype(x.dtype)
    operation = getattr(ops, name)
    for function in (operation, toolkit.function(operation)):
        for _ in range(2):
            np.testing.assert_array_equal(
                np.asarray(function(x, y)).astype("float32"), expected.astype("float32")
            )


@narrow_dtypes
def test_conversions_have_the_bits_of_numpy(narrow):
    random = np.random.default_rng(0)
    x = random.integers(0, 2**32, 5001, dtype=np.uint32).view(np.float32)
    x[:4] = np.nan, np.inf, -0.0, 3.4e38
    x[5:2000] = np.float32(2) ** random.uniform(-27, 17, 1995).astype("float32")
    step = toolkit.function(lambda x: ops.cast(x, narrow))
    with np.errstate(all="ignore"):
        expected = x.astype(dtypes.numpy_dtype(narrow))
    actual = step(x).numpy()
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(x))
    is_number = ~np.isnan(x)
    np.testing.assert_array_equal(
        actual[is_number].view(np.uint16), expected[is_number].view(np.uint16)
    )
    back = toolkit.function(lambda x: ops.cast(x, "float32"))(expected)
    np.testing.assert_array_equal(back.numpy(), expected.astype(np.float32))


@needs_conversions
@narrow_dtypes
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: ops.transpose(x[1:])])
def test_round_trip_casts_round(dtype, view, narrow):
    x = np.linspace(-6e3, 6e3, 390).reshape(-1, 3).astype(dtype)

    def split(x):
        high = ops.cast(x + x, narrow)
        return view(high), ops.cast(view(high), dtype), x + x - ops.cast(high, dtype)

    compiled = toolkit.function(split)
    for actual, expected in zip(
        compiled(x), split(ops.convert_to_tensor(x)), strict=True
    ):
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())
    assert compiled.inspect(x).program.code is not None


def narrow_values(x):
    return ops.cast(x, "bfloat16")


def wide_values(x):
    return ops.cast(x, "float32")


def halved_values(x):
    return ops.while_loop(
        lambda i, x: i < 4,
        lambda i, x: (i + 1, wide_values(narrow_values(x)) / 3),
        (0, x),
    )[1]


def carried(x):
    return wide_values(
        ops.while_loop(
            lambda i, x: i < 9,
            lambda i, x: (i + 1, narrow_values(wide_values(x) + 1e-3)),
            (0, narrow_values(x)),
        )[1]
    )


def scanned(x):
    total, elements = ops.scan(
        lambda s, x: (narrow_values(wide_values(s) + x), narrow_values(x)),
        narrow_values(x[0]),
        x,
    )
    return wide_values(total), wide_values(elements)


def captured_by_a_loop(x):
    high = narrow_values(x)
    return ops.fori_loop(0, 2, lambda i, y: y + x - wide_values(high), x)


def captured_by_a_branch(x):
    high = narrow_values(x)
    return ops.cond(x[0] > 0, lambda: x - wide_values(high), lambda: x)


def chosen_by_a_branch(x):
    return wide_values(
        ops.cond(x[0] > 0, lambda: narrow_values(x), lambda: narrow_values(3 * x))
    )


def moved(x):
    pieces = [
        narrow_values(x),
        ops.stop_gradient(narrow_values(2 * x)),
        ops.take(narrow_values(x), [3, 1]),
    ]
    pieces.append(ops.where(x > 4, narrow_values(x), narrow_values(5 * x)))
    return wide_values(ops.roll(ops.pad(ops.concatenate(pieces), (1, 2)), 3))


@pytest.mark.parametrize(
    "function",
    [
        *(halved_values, carried, scanned, captured_by_a_loop, captured_by_a_branch),
        *(chosen_by_a_branch, moved),
    ],
    ids=lambda function: function.__name__,
)
def test_moved_values_between_casts_are_rounded(function):
    x = np.linspace(1, 9, 50, dtype=np.float32)
    actual, right = toolkit.function(function)(x), function(ops.convert_to_tensor(x))
    for y, expected in zip(*map(toolkit.tree.flatten, (actual, right)), strict=True):
        np.testing.assert_array_equal(y.numpy(), expected.numpy())


def dense():
    return [layers.Flatten(), layers.Dense(16, "relu"), layers.Dense(3)]


def convolutional():
    return [layers.Conv1D(8, 3, activation="relu"), layers.Flatten(), layers.Dense(3)]


def recurrent():
    return [layers.LSTM(8), layers.Dense(3)]


@needs_conversions
@narrow_dtypes
@pytest.mark.parametrize("network", [dense, convolutional, recurrent])
def test_a_training_step_is_one_program_close_to_float32(network, narrow):
    random = np.random.default_rng(0)
    x = random.random((32, 6, 5), np.float32)
    y = random.integers(0, 3, 32)
    losses = []
    for policy in ("float32", f"mixed_{narrow}"):
        toolkit.utils.set_random_seed(0)
        toolkit.config.set_dtype_policy(policy)
        try:
            model = toolkit.Sequential([toolkit.Input((6, 5)), *network()])
        finally:
            toolkit.config.set_dtype_policy(None)
        loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        history = model.fit(x, y, batch_size=32, epochs=3, verbose=0)
        losses.append(history.history["loss"])
        assert model.inspect(x, y).program.code is not None
    np.testing.assert_allclose(*losses, rtol=2e-2)
