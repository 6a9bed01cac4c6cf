"""Test that MultiOptimizer updates each variable with its optimizer."""

import numpy as np
import pytest

import toolkit
from toolkit import Input, Sequential, layers, ops, optimizers
from toolkit.errors import ArgumentError
from toolkit.functions.decorator import function
from toolkit.optimizers import MultiOptimizer, OptimizerMap

VALUES = [np.array([1.0, 2.0]), np.array([3.0]), np.array([[4.0]])]
NAMED = list(zip(VALUES, ("kernel", "bias", "head"), strict=True))
GRADS = [np.array([0.5, -1.0]), np.array([2.0]), np.array([[1.0]])]


def three():
    with toolkit.name_scope("encoder"):
        kernel, bias = (toolkit.Variable(v, name=n) for v, n in NAMED[:2])
    return [kernel, bias, toolkit.Variable(VALUES[2], name="head")]


def make_multi_optimizer(**arguments):
    optimizer_map = OptimizerMap(
        optimizers.SGD(0.5), {"encoder/.*": optimizers.Adam(0.1)}
    )
    return MultiOptimizer(optimizer_map, **arguments)


@pytest.mark.parametrize("traced", [False, True])
def test_each_variable_has_its_optimizer(traced):
    together, separate = three(), three()
    multi, adam, sgd = make_multi_optimizer(), optimizers.Adam(0.1), optimizers.SGD(0.5)
    multi.build(together)
    step = function(multi.apply) if traced else multi.apply
    for _ in range(3):
        step([ops.convert_to_tensor(g) for g in GRADS])
        adam.apply(GRADS[:2], separate[:2])
        sgd.apply(GRADS[2:], separate[2:])
    for a, b in zip(together, separate, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert int(multi.iterations) == 3
    assert [int(optimizer.iterations) for optimizer in multi.optimizers] == [3, 3]


def test_function_may_select_the_optimizer():
    first, second = optimizers.SGD(0.1), optimizers.SGD(1.0)
    multi = MultiOptimizer(lambda v: first if v.ndim == 1 else second)
    variables = three()
    multi.apply(GRADS, variables)
    assert multi.optimizers == [first, second]
    np.testing.assert_allclose(variables[2].numpy(), [[3.0]])
    np.testing.assert_allclose(variables[1].numpy(), [2.8])


def test_configs_and_weights_round_trip():
    multi, variables = make_multi_optimizer(), three()
    multi.apply(GRADS, variables)
    restored = optimizers.deserialize(optimizers.serialize(multi))
    restored.build(variables)
    assert [type(optimizer) for optimizer in restored.optimizers] == [
        optimizers.Adam,
        optimizers.SGD,
    ]
    restored.set_weights([v.numpy() for v in multi.variables])
    for a, b in zip(restored.variables, multi.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_loss_scale_replaces_the_scales_of_the_optimizers():
    multi, variables = make_multi_optimizer(loss_scale_factor=4.0), three()
    assert float(multi.scale_loss(ops.convert_to_tensor(2.0))) == 8.0
    multi.apply(GRADS, variables)
    np.testing.assert_allclose(variables[2].numpy(), [[4.0 - 0.5 / 4]])


def test_fit_trains_with_several():
    optimizer_map = OptimizerMap(optimizers.SGD(0.0))
    optimizer_map[".*last/.*"] = optimizers.SGD(0.1)
    model = Sequential([Input((3,)), layers.Dense(4), layers.Dense(1, name="last")])
    model.compile(MultiOptimizer(optimizer_map), "mse")
    before = [w.copy() for w in model.get_weights()]
    x = np.ones((8, 3), "float32")
    model.fit(x, np.ones((8, 1), "float32"), verbose=0)
    same = [
        np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True)
    ]
    assert same == [True, True, False, False]


def test_rates_are_from_the_optimizers():
    with pytest.raises(AttributeError, match=r"\.optimizers"):
        _ = make_multi_optimizer().learning_rate


def test_dynamic_loss_scaling_of_several():
    inner = optimizers.MultiOptimizer(
        OptimizerMap(optimizers.SGD(0.5)), loss_scale_factor=8.0
    )
    optimizer = optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
    assert inner.loss_scale_factor is None
    v = toolkit.Variable(np.ones(2))
    optimizer.apply([np.full(2, 4.0)], [v])
    np.testing.assert_array_equal(v, np.full(2, 0.5))


def test_invalid_maps_are_refused():
    optimizer_map = OptimizerMap(optimizers.SGD(), {".*a": optimizers.SGD()})
    optimizer_map["b.*"] = optimizers.Adam()
    with pytest.raises(ArgumentError, match="it matches"):
        optimizer_map["ba"]
    with pytest.raises(ArgumentError, match="already has"):
        optimizer_map["b.*"] = optimizers.SGD()
    with pytest.raises(ArgumentError, match="cannot be LossScaleOptimizer"):
        optimizer_map["c"] = optimizers.LossScaleOptimizer(optimizers.SGD())
    with pytest.raises(TypeError, match="default_optimizer"):
        OptimizerMap("sgd")
    with pytest.raises(ArgumentError, match="No gradients"):
        make_multi_optimizer().apply([None] * 3, three())


def test_keys_without_a_variable_are_reported():
    model = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1, name="d")])
    keys = {"d/.*": optimizers.SGD(), ".*/d/.*": optimizers.SGD()}
    chosen = OptimizerMap(optimizers.Adam(), keys)
    with pytest.warns(UserWarning, match="'d/.*' matches no variable") as caught:
        MultiOptimizer(chosen).build(model.trainable_variables)
    assert len(caught) == 1 and f"'{model.name}/d/bias'" in str(caught[0].message)
