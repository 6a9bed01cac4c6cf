"""Tests that the residuals of a gradient are the cheapest sufficient set of values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import toolkit
from tests.compiler.graphs import op_names, trace_of
from toolkit import ops
from toolkit.autodiff.residuals import cheapest_residuals


@dataclass(eq=False)
class SavedValue:
    """A value with its sources (None: it cannot be recomputed) and its cost."""

    sources: list | None
    price: int = 1


def saved_values(*needed):
    return cheapest_residuals(needed, lambda v: v.sources, lambda v: v.price)


def test_common_source_is_saved():
    x = SavedValue(None)
    assert saved_values(SavedValue([x]), SavedValue([x]), SavedValue([x])) == [x]


def test_small_result_is_saved_instead_of_its_sources():
    a, b = SavedValue(None, 4), SavedValue(None, 4)
    small = SavedValue([a, b], 3)
    assert saved_values(SavedValue([small], 2), SavedValue([small], 2)) == [small]


def test_equal_costs_save_the_later_value():
    x = SavedValue(None)
    y = SavedValue([x])
    assert saved_values(y) == [y]


def test_available_values_are_not_saved():
    assert saved_values(SavedValue([SavedValue([]), SavedValue([])])) == []


def test_expensive_source_is_saved_once():
    x, y = SavedValue(None, 5), SavedValue(None, 1)
    results = [SavedValue([x, y], 2) for _ in range(2)]
    assert set(saved_values(*results)) == set(results)
    results.append(SavedValue([x, y], 2))
    results.append(SavedValue([x, y], 2))
    assert set(saved_values(*results)) == {x, y}


def test_lstm_saves_only_gates_and_states():
    model = toolkit.Sequential([toolkit.Input((5, 3)), toolkit.layers.LSTM(4)])
    model.compile("sgd", "mse")
    x, y = np.zeros((8, 5, 3), "float32"), np.zeros((8, 4), "float32")
    model.fit(x, y, verbose=0)
    scans = [n for n in model.inspect(x, y).graph.nodes if n.op.name == "scan"]
    forward = scans[0].attrs
    # i, f, g, o, tanh(c), and the states before the step.
    assert len(forward["body"].outputs) - forward["carry"] == 7


def test_the_gradient_of_a_weight_is_one_product_over_all_steps():
    def gradient(w, xs):
        with toolkit.GradientTape() as tape:
            tape.watch(w)
            start = ops.zeros((2, 4))
            final, _ = ops.scan(lambda c, x: (ops.tanh(c + x @ w), None), start, xs)
            loss = ops.sum(final)
        return tape.gradient(loss, w)

    graph = trace_of(gradient, (3, 4), (5, 2, 3))
    product = graph.nodes[-1]
    assert op_names(graph).count("matmul") == 1 and product.op.name == "matmul"
    assert [x.spec.shape for x in product.inputs] == [(3, 10), (10, 4)]


def test_scan_gradients_do_not_depend_on_residuals():
    def total(x, w):
        def body(carry, x_t):
            y = ops.tanh(carry * w + x_t)
            return y * (1 - y) + ops.exp(-y) * x_t, y * y

        final, states = ops.scan(body, ops.zeros(3), x)
        return ops.sum(final * final) + ops.sum(states)

    def unrolled(x, w):
        carry, result = ops.zeros(3), 0.0
        for x_t in x:
            y = ops.tanh(carry * w + x_t)
            carry, result = y * (1 - y) + ops.exp(-y) * x_t, result + ops.sum(y * y)
        return ops.sum(carry * carry) + result

    def gradients(function):
        def gradients_of(x, w):
            with toolkit.GradientTape() as tape:
                tape.watch([x, w])
                result = function(x, w)
            return tape.gradient(result, [x, w])

        return gradients_of

    generator = np.random.default_rng(0)
    x = ops.convert_to_tensor(generator.standard_normal((6, 3)).astype("float32"))
    w = ops.convert_to_tensor(generator.standard_normal(3).astype("float32"))
    actual = toolkit.function(gradients(total))(x, w)
    for a, b in zip(actual, gradients(unrolled)(x, w), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-5)
