"""Tests of `tf.function`, `tf.Module`, tapes, control flow and settings."""

import io

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, ShapeError


def test_a_function_is_traced_once_per_signature():
    traces = []

    @tf.function
    def double(x):
        traces.append(x)
        return x * 2

    for x in (1, 2, 3.0, [1, 2], [3, 4]):
        assert np.array_equal(double(tf.constant(x)), np.multiply(x, 2))
    assert len(traces) == double.experimental_get_tracing_count() == 3


def test_input_signature_with_none_accepts_any_extent():
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def total(x):
        return tf.reduce_sum(x, axis=1)

    assert total(tf.ones((3, 2))).shape == (3,)
    assert total(tf.ones((5, 2))).shape == (5,)
    with pytest.raises(ShapeError, match="input_signature"):
        total(tf.ones((3, 3)))


@pytest.mark.parametrize("extent", [None, 2])
def test_concrete_function_accepts_matching_specs(extent):
    concrete = tf.function(lambda x: x + 1).get_concrete_function(
        tf.TensorSpec([extent], tf.float32)
    )
    assert concrete(tf.constant([1.0, 2.0])).numpy().tolist() == [2.0, 3.0]
    with pytest.raises(ShapeError, match="expected a tensor of shape"):
        concrete(tf.ones((2, 2)))


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}, {"jit_compile": False}])
def test_compiled_and_eager_results_are_equal(options):
    function = tf.function(lambda x, y: tf.reduce_sum(x + y), **options)
    assert function(tf.ones(3), tf.ones(3)).numpy() == 6.0


def test_functions_run_eagerly_on_request():
    calls = []
    function = tf.function(lambda x: calls.append(x.numpy()) or x)
    tf.config.run_functions_eagerly(True)
    try:
        function(tf.constant(1.0))
        assert tf.config.functions_run_eagerly() and calls == [1.0]
    finally:
        tf.config.run_functions_eagerly(False)


def test_methods_have_separate_traces():
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0)

        @tf.function
        def add(self, n):
            return self.count.assign_add(n)

    one, two = Counter(), Counter()
    one.add(tf.constant(2)), one.add(tf.constant(3)), two.add(tf.constant(1))
    assert (one.count.numpy(), two.count.numpy()) == (5, 1)
    assert one.add.experimental_get_tracing_count() == 1


class Linear(tf.Module):
    def __init__(self, inputs, outputs, name=None):
        super().__init__(name=name)
        with self.name_scope:
            self.w = tf.Variable(tf.ones([inputs, outputs]), name="w")
        self.extras = [tf.Variable(1.0, trainable=False), {"again": self.w}]

    def __call__(self, x):
        return x @ self.w


def test_module_lists_its_variables_and_modules():
    class Stack(tf.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = Linear(3, 3), Linear(3, 2, name="two")
            self.layer = tf.keras.layers.Dense(1)
            self.layer.build((None, 2))

    stack = Stack()
    assert stack.name == "stack"
    assert [module.name for module in stack.submodules][1:] == ["linear", "two"]
    assert len(stack.variables) == 2 + 2 + 2
    assert len(stack.trainable_variables) == 1 + 1 + 2
    assert len(stack.non_trainable_variables) == 2
    assert stack.two.w.name == "two/w:0"
    assert isinstance(stack.layer, tf.Module) and not isinstance(stack.layer, Linear)


def test_gradients_of_structures_and_unconnected_values():
    v, u = tf.Variable(1.0), tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        y = v * 2.0
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(y, {"v": v, "u": u}, unconnected_gradients=zero)
    assert {name: float(g) for name, g in gradients.items()} == {"v": 2.0, "u": 0.0}
    assert tape.gradient(y, u) is None
    x = tf.constant(np.arange(6.0).reshape(2, 3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x[:, :2] ** 2
    batch = tape.batch_jacobian(y, x).numpy()
    expected = np.zeros((2, 2, 3))
    for sample, row in enumerate(x.numpy()):
        np.fill_diagonal(expected[sample], 2 * row[:2])
    assert np.array_equal(batch, expected)


def test_control_flow_is_traced():
    @tf.function
    def collatz(n):
        def step(n, count):
            even = tf.equal(n % 2, 0)
            return tf.cond(even, lambda: n // 2, lambda: 3 * n + 1), count + 1

        return tf.while_loop(lambda n, count: n > 1, step, (n, tf.constant(0)))

    assert collatz(tf.constant(6))[1].numpy() == 8


def test_shapes_are_numbers_inside_of_a_trace():
    @tf.function
    def flatten(x):
        return tf.reshape(x, (tf.shape(x)[0], -1)), tf.zeros(tf.shape(x)[1:] * 2)

    flat, zeros = flatten(tf.ones((2, 3, 4)))
    assert (flat.shape, zeros.shape) == ((2, 12), (6, 8))


def test_asserts():
    tf.debugging.assert_equal([1, 2], [1, 2])
    tf.debugging.assert_near(1.0, 1.0 + 1e-7)
    tf.debugging.assert_shapes([(tf.zeros((2, 3)), ("N", 3)), (tf.zeros(2), ("N",))])
    for failing in (
        lambda: tf.debugging.assert_less([1, 2], [2, 2], message="too large"),
        lambda: tf.debugging.assert_positive([0.0]),
        lambda: tf.debugging.check_numerics(tf.constant([np.nan]), "no numbers"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected"):
            failing()
    with pytest.raises(ShapeError, match="assert_shapes"):
        tf.debugging.assert_shapes([(tf.zeros(2), ("N",)), (tf.zeros(3), ("N",))])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"odd; \[0 \.\.\. 8\]"):
        tf.debugging.Assert(False, ["odd", tf.range(9)], summarize=1)
    with pytest.raises(ShapeError, match=r"received \(2,\); \[0 1 \.\.\. 7 8\]"):
        tf.debugging.assert_shapes(
            [(tf.zeros(2), (3,))], data=[tf.range(9)], summarize=2
        )


def test_devices_are_listed_and_unchanged():
    devices = tf.config.list_physical_devices()
    assert devices[0].device_type in ("CPU", "GPU")
    tf.config.set_visible_devices(devices)
    assert tf.config.get_visible_devices() == devices
    with pytest.raises(NotImplementedError, match="cannot be hidden"):
        tf.config.set_visible_devices([])
    with tf.device("/CPU:0"):
        assert tf.ones(2).device.endswith("device:CPU:0")


def test_jit_settings_are_stored():
    tf.config.optimizer.set_jit(True)
    assert tf.config.optimizer.get_jit() == "autoclustering"
    tf.config.optimizer.set_jit(False)
    assert tf.config.optimizer.get_jit() == ""


def test_scope_names_are_prefixes():
    with tf.name_scope("a/b") as scope:
        assert scope == "a/b/"
        assert tf.Variable(1.0, name="v").name == "a/b/v:0"


def test_operation_seed_starts_a_sequence():
    def draw(seed):
        return tf.random.uniform([2], seed=seed).numpy().tolist()

    tf.random.set_seed(3)
    first, second, other = draw(1), draw(1), draw(2)
    assert first != second != other
    tf.random.set_seed(3)
    assert (draw(1), draw(1), draw(2)) == (first, second, other)
    tf.random.set_seed(4)
    assert draw(1) != first


def test_generators_are_repeatable():
    one, two = (tf.random.Generator.from_seed(7) for _ in range(2))
    assert np.array_equal(one.normal([3]), two.normal([3]))
    assert not np.array_equal(one.uniform([3]), one.uniform([3]))
    one.reset_from_seed(1), two.reset_from_seed(1)
    assert np.array_equal(
        one.uniform([3], 1, 9, tf.int32), two.uniform([3], 1, 9, "int32")
    )
    generators = one.split(2)
    assert not np.array_equal(generators[0].normal([3]), generators[1].normal([3]))
    pair = [tf.random.stateless_normal([3], seed=[1, 2]).numpy() for _ in range(2)]
    assert np.array_equal(*pair)


def test_samples_have_the_right_moments():
    tf.random.set_seed(0)
    x = tf.random.normal([4000], 3.0, 2.0).numpy()
    assert abs(x.mean() - 3.0) < 0.15 and abs(x.std() - 2.0) < 0.15
    g = tf.random.gamma([4000], alpha=[2.0], beta=4.0).numpy()
    assert g.shape == (4000, 1) and abs(g.mean() - 0.5) < 0.05
    n = tf.random.uniform([1000], 2, 5, tf.int32).numpy()
    assert set(n) == {2, 3, 4}
    assert tf.random.categorical([[0.0, -100.0]], 5).numpy().tolist() == [[0] * 5]
    assert sorted(tf.random.shuffle(tf.range(9)).numpy()) == list(range(9))
    assert tf.image.random_crop(tf.zeros((8, 8, 3)), (4, 5, 3)).shape == (4, 5, 3)


def test_loops_over_ranges_are_unrolled_with_known_numbers():
    @tf.function
    def powers(x):
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(3):
            array = array.write(i, x ** tf.cast(i, tf.float32))
        return array.stack()

    assert powers(tf.constant(2.0)).numpy().tolist() == [1.0, 2.0, 4.0]


def test_tensor_arrays_refuse_mismatched_values():
    array = tf.TensorArray(tf.int32, size=2).unstack([[1, 2], [3, 4]])
    assert array.gather([1]).numpy().tolist() == [[3, 4]]
    assert array.concat().shape == (4,) and array.read(0).shape == (2,)
    with pytest.raises(ArgumentError, match="read before"):
        array.read(0)
    with pytest.raises(ArgumentError, match=r"in \[0, 2\)"):
        array.write(2, [5, 6])
    with pytest.raises(ShapeError, match="expected shape"):
        array.write(0, [5])


def test_variables_are_scattered_into():
    v = tf.Variable([1, 2, 3])
    v.scatter_nd_update([[1]], [9])
    v.scatter_nd_add([[0], [0]], [1, 1])
    assert v.numpy().tolist() == [3, 9, 3]


def test_map_fn_checks_its_signature():
    def halve(x):
        return x / 2

    assert tf.map_fn(halve, tf.ones(2), fn_output_signature=tf.float32).shape == (2,)
    with pytest.raises(TypeError, match="map_fn"):
        tf.map_fn(halve, tf.ones(2), fn_output_signature=tf.int32)


def test_checkpoints_restore_models_and_optimizers(tmp_path):
    def create():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
        model.build((None, 3))
        optimizer = tf.keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        return model, optimizer, tf.Variable(0)

    model, optimizer, step = create()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones((1, 3))))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    manager = tf.train.CheckpointManager(checkpoint, tmp_path / "new", max_to_keep=2)
    assert manager.restore_or_initialize() is None
    for _ in range(3):
        step.assign_add(1)
        manager.save()
    assert len(list((tmp_path / "new").glob("*.h5"))) == 2
    assert manager.latest_checkpoint == tf.train.latest_checkpoint(tmp_path / "new")

    restored, optimizer_again, step_again = create()
    other = tf.train.Checkpoint(
        model=restored, optimizer=optimizer_again, step=step_again
    )
    other.restore(manager.latest_checkpoint).assert_consumed()
    assert step_again.numpy() == 3 and other.save_counter.numpy() == 3
    pairs = [*zip(model.variables, restored.variables, strict=True)]
    pairs += zip(optimizer.variables, optimizer_again.variables, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    partial = tf.train.Checkpoint(step=step_again).restore(manager.latest_checkpoint)
    partial.assert_existing_objects_matched().expect_partial()
    with pytest.raises(AssertionError, match="no object has names"):
        partial.assert_consumed()
    with pytest.raises(FileNotFoundError):
        other.restore(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="expected objects with Variables"):
        tf.train.Checkpoint(x=1).write(tmp_path / "x")


def test_core_keeps_dtypes_of_numpy_scalars():
    v = tf.Variable(1.0, dtype=tf.float64)
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build([v])
    assert optimizer.variables[-1].dtype == tf.float64
    assert tf.Variable(v.numpy()).dtype == tf.constant(v.numpy()).dtype == tf.float64


def test_both_versions_have_tensorflow_import_names():
    import toolkit.compat.tensorflow.compat.v1 as tf1
    import toolkit.compat.tensorflow.compat.v2 as tf2
    from toolkit.compat.tensorflow import v1
    from toolkit.compat.tensorflow.compat.v1 import Session

    assert (tf1, tf2, Session) == (v1, tf, v1.Session)
    assert (tf.compat.v1, tf.compat.v2) == (v1, tf)
    with pytest.raises(AttributeError, match="no attribute 'v3'"):
        _ = tf.compat.v3


def test_eager_function_is_compiled_in_a_caller():
    @tf.function
    def helper(x, shows=False):
        if shows:
            tf.print(x, output_stream=io.StringIO())
        if tf.reduce_sum(x) > 0:
            return x * 2
        return x * 3

    with pytest.warns(UserWarning, match="runs eagerly"):
        helper(tf.ones(2), True)
    outer = tf.function(lambda x: helper(x))
    assert outer(tf.ones(2)).numpy().tolist() == [2, 2]
    assert outer(-tf.ones(2)).numpy().tolist() == [-3, -3]


def test_the_value_of_a_variable_counts_elements_of_a_data_set():
    n = tf.Variable(2)
    assert int(n + 0) == 2
    assert len(list(tf.data.Dataset.range(5).take(n.read_value()))) == 2
