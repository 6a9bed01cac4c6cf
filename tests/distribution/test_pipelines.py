"""Test pipeline parallelism in one process: training and refusals."""

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import concrete_function
from toolkit import distribution, layers, ops
from toolkit.comm import local
from toolkit.compiler.sharding.pipelines import Move
from toolkit.distribution import DeviceMesh, PipelineParallel
from toolkit.distribution.pipelines import StagePlacement
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.ir import Spec


@pytest.fixture(autouse=True)
def no_distribution():
    yield
    distribution.set_distribution(None)


def network(*middle):
    tk.utils.set_random_seed(0)
    model = tk.Sequential([layers.Dense(16, activation="relu", name="first"), *middle])
    model.add(layers.Dense(3, activation="softmax", name="last"))
    return model


def data(rows=20):
    random = np.random.default_rng(0)
    return random.random((rows, 6), "float32"), random.integers(0, 3, rows)


def trained(model, optimizer="adam", **options):
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(*data(), batch_size=9, epochs=2, verbose=0, **options).history
    return history, [np.asarray(v) for v in model.variables]


def near(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max(initial=1))


def deep():
    tk.utils.set_random_seed(0)
    middle = [layers.Dropout(0.2), layers.LayerNormalization(name="norm")]
    return network(*middle)


@pytest.mark.parametrize("stages", [
    ["first|norm", "last"],
    {"first": 0, "no.*": 0, ".*last": 1},
    {"last": 2, "norm": 1, "first": 0},
    [["first/.*", "middle"], ["norm", "last"]],
])  # fmt: skip
@pytest.mark.parametrize("count", [1, 4, 32])
@pytest.mark.one_in(5)
def test_fit_evaluate_and_predict(stages, count):
    expected, weights = trained(deep())
    with PipelineParallel(stages, micro_batches=count).scope():
        model = deep()
        results, values = trained(model)
        logs = model.evaluate(*data(), verbose=0)
        predicted = model.predict(data()[0], batch_size=7, verbose=0)
    near(values, weights)
    assert results["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert results["accuracy"] == expected["accuracy"]
    assert logs == pytest.approx(model.evaluate(*data(), verbose=0), rel=1e-5)
    near([predicted], [model.predict(data()[0], verbose=0)])


def test_steps_are_not_inspected():
    with PipelineParallel(["first|norm", "last"]).scope():
        model = deep()
        trained(model)
        with pytest.raises(UnsupportedError, match="stages of a pipeline"):
            model.make_train_function().inspect()


def test_options_of_training():
    """Test regularizers, clipping, sample weights, class weights and frozen layers."""

    def run():
        model = network(layers.Dense(8, kernel_regularizer="l2", name="first_more"))
        model.get_layer("first").trainable = False
        optimizer = tk.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.05)
        return trained(
            model,
            optimizer,
            class_weight={0: 1.0, 1: 2.0, 2: 0.5},
            validation_data=(*data(5), np.linspace(0, 2, 5)),
        )

    expected, weights = run()
    with PipelineParallel(["first(_more)?", "last"], micro_batches=3).scope():
        results, values = run()
    near(values, weights)
    for key, numbers in expected.items():
        assert results[key] == pytest.approx(numbers, rel=1e-5), key


OPTIMIZERS = {
    "scaled": lambda: tk.optimizers.LossScaleOptimizer(tk.optimizers.Adam(0.01)),
    "accumulated": lambda: tk.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "averaged": lambda: tk.optimizers.SGD(
        0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_that_update_all_weights_or_none(name):
    expected, weights = trained(network(), OPTIMIZERS[name]())
    with PipelineParallel(["first", "last"], micro_batches=3).scope():
        model = network()
        results, values = trained(model, OPTIMIZERS[name]())
        concrete = one_trace(model)
    near(values, weights)
    assert results["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    moved = [step for step in concrete.program.pipeline.order if isinstance(step, Move)]
    last = [step for step in moved if step.micro_batch is None]
    assert all(y.spec.size == 1 or y.spec.shape == (2,) for m in last for y in m.values)


def one_trace(model):
    batch = tuple(map(ops.convert_to_tensor, (data()[0][:9], data()[1][:9])))
    return concrete_function(model.make_train_function(), batch)[0]


@pytest.mark.parametrize("make", [
    lambda: tk.optimizers.SGD(gradient_accumulation_steps=2, global_clipnorm=1.0),
    lambda: tk.optimizers.LossScaleOptimizer(tk.optimizers.SGD(global_clipnorm=1.0)),
])  # fmt: skip
def test_normalization_inside_a_branch_is_refused(make):
    with PipelineParallel(["first", "last"]).scope():
        with pytest.raises(
            UnsupportedError, match=r"reads values of the stages \[0, 1\]"
        ):
            trained(network(), make())


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy):
    tk.config.set_dtype_policy(policy)
    try:
        _, expected = trained(network())
        with PipelineParallel(["first", "last"], micro_batches=3).scope():
            _, results = trained(network())
    finally:
        tk.config.set_dtype_policy("float32")
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_existing_model_is_accepted():
    expected, weights = trained(network())
    model = network()
    with PipelineParallel(["first", "last"]).scope():
        results, values = trained(model)
    near(values, weights)
    assert results["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_stages():
    parallel = PipelineParallel({"block_1/.*": 0, "block_2": 1, "head": 1})
    assert parallel.device_mesh.axis_names == ["stage"]
    assert parallel.micro_batches == 8
    assert parallel.stage_of("model/block_1/dense/gradient") == 0
    assert parallel.stage_of("block_1") == 0
    assert parallel.stage_of("block_2/kernel") == parallel.stage_of("a/head/bias") == 1
    assert parallel.stage_of("block_10/kernel") is None
    with pytest.raises(ArgumentError, match="matches .*'.*k': 0, 'block': 1"):
        PipelineParallel([".*k", "block"]).stage_of("block")


@pytest.mark.parametrize("stages", [[], {}, "first", {"a": 1}, {"a": 0, "b": 2}, [1]])
def test_refused_stages(stages):
    with pytest.raises(ArgumentError, match="expected stages as"):
        PipelineParallel(stages)


def test_refused_options():
    for count in (0, -1, 1.5, None):
        with pytest.raises(ArgumentError, match="micro_batches of at least 1"):
            PipelineParallel(["a"], micro_batches=count)
    mesh = DeviceMesh((1, 1), ["batch", "stage"], ["cpu:0"])
    with pytest.raises(UnsupportedError, match="the one axis 'stage'"):
        PipelineParallel(["a"], device_mesh=mesh)
    mesh = DeviceMesh((2,), ["stage"], ["cpu:0", "cpu:1"])
    with pytest.raises(ArgumentError, match="a stage for each of the 2 devices"):
        PipelineParallel(["a"], device_mesh=mesh)


def test_a_layer_without_a_stage_is_named():
    with PipelineParallel(["first"]).scope():
        with pytest.raises(ArgumentError, match=r"no pattern .*'sequential.*/last/ke"):
            trained(network())


def test_batch_normalization_is_named():
    with PipelineParallel(["first", "last"]).scope():
        with pytest.raises(ArgumentError, match="weights"):
            trained(network(layers.BatchNormalization(name="norm")))
    with PipelineParallel(["first|norm", "last"]).scope():
        with pytest.raises(
            UnsupportedError, match="layer .*norm' needs a value of the full batch"
        ):
            trained(network(layers.BatchNormalization(name="norm")))


def test_variable_is_stored_by_one_rank():
    value = np.arange(6, dtype="float32").reshape(2, 3)

    def of(group):
        placement = StagePlacement(group, 1, Spec((2, 3), "float32"))
        shard = placement.take_local(value)
        return (
            shard.shape,
            placement.local_bounds(),
            placement.gather(shard).tolist(),
            str(placement),
        )

    reports = local.run(3, of)
    shapes = [shape for shape, *_ in reports]
    assert shapes == [(0, 0), (2, 3), (0, 0)]
    for shape, box, full, text in reports:
        assert box == tuple((0, extent) for extent in shape)
        assert (full, text) == (value.tolist(), "by rank 1")
