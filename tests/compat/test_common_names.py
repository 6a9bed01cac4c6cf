"""Tests of common names in scripts and in tests of libraries."""

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit.errors import DeviceError, ShapeError, UnsupportedError

NARROW = tf.constant([1.0, 2.0], tf.float16)
HOLDS = {
    "equal": lambda t: t.assertAllEqual(tf.constant([1, 2]), [1, 2]),
    "near": lambda t: t.assertAllClose(tf.constant([1.0, 2.0]), [1.0, 2.0 + 1e-7]),
    "nests": lambda t: t.assertAllClose(
        {"a": [tf.ones(2), tf.zeros((1, 2))]}, {"a": [np.ones(2), np.zeros((1, 2))]}
    ),
    "narrow": lambda t: t.assertAllCloseAccordingToType(NARROW, [1.0, 2.001]),
    "not equal": lambda t: t.assertNotAllEqual(tf.ones(2), [1, 2]),
    "not near": lambda t: t.assertNotAllClose(tf.ones(2), [1.0, 1.1]),
    "two numbers": lambda t: t.assertNear(1.0, 1.05, 0.1),
    "rows": lambda t: t.assertArrayNear([1.0, 2.0], tf.constant([1.0, 2.05]), 0.1),
    "range": lambda t: t.assertAllInRange(tf.range(3), 0, 2),
    "set": lambda t: t.assertAllInSet(tf.constant([0, 2]), {0, 1, 2}),
    "greater": lambda t: t.assertAllGreater(tf.ones(2), 0),
    "greater or equal": lambda t: t.assertAllGreaterEqual(tf.ones(2), 1),
    "less": lambda t: t.assertAllLess(tf.ones(2), 2),
    "less or equal": lambda t: t.assertAllLessEqual(tf.ones(2), 1),
    "shapes": lambda t: t.assertShapeEqual(tf.ones((2, 3)), np.zeros((2, 3))),
    "dtype": lambda t: t.assertDTypeEqual(tf.ones(2), tf.float32),
    "length": lambda t: t.assertLen([1, 2], 2),
    "empty": lambda t: t.assertEmpty([]),
    "not empty": lambda t: t.assertNotEmpty([0]),
}
FAILS = {
    "equal": lambda t: t.assertAllEqual([1, 2], [1, 3]),
    "near": lambda t: t.assertAllClose([1.0], [1.0 + 1e-4]),
    "equal, of other shapes": lambda t: t.assertAllEqual([1, 1], 1),
    "near, of other shapes": lambda t: t.assertAllClose([1.0, 1.0], 1.0),
    "nests": lambda t: t.assertAllClose({"a": tf.ones(1)}, {"a": tf.zeros(1)}),
    "narrow": lambda t: t.assertAllCloseAccordingToType(NARROW, [1.0, 2.1]),
    "not equal": lambda t: t.assertNotAllEqual(tf.ones(2), [1, 1]),
    "not near": lambda t: t.assertNotAllClose(tf.ones(2), [1.0, 1.0]),
    "two numbers": lambda t: t.assertNear(1.0, 1.2, 0.1),
    "range": lambda t: t.assertAllInRange(tf.range(3), 0, 2, open_upper_bound=True),
    "set": lambda t: t.assertAllInSet(tf.constant([0, 3]), {0, 1, 2}),
    "greater": lambda t: t.assertAllGreater(tf.ones(2), 1),
    "less": lambda t: t.assertAllLess(tf.ones(2), 1),
    "shapes": lambda t: t.assertShapeEqual(tf.ones((2, 3)), np.zeros((3, 2))),
    "dtype": lambda t: t.assertDTypeEqual(tf.ones(2), tf.int32),
    "not empty": lambda t: t.assertNotEmpty([]),
}


@pytest.mark.parametrize("name", HOLDS)
def test_true_assertions_pass(name):
    HOLDS[name](tf.test.TestCase())


@pytest.mark.parametrize("name", FAILS)
def test_false_assertions_raise(name):
    with pytest.raises(AssertionError):
        FAILS[name](tf.test.TestCase())


def test_cases_of_tests():
    class CustomTest(tf.test.TestCase):
        def test_values(self):
            with self.session():
                self.assertEqual(self.evaluate({"a": tf.ones(2)})["a"].tolist(), [1, 1])
            with open(f"{self.get_temp_dir()}/a", "w", encoding="utf-8") as file:
                file.write("a")
            with self.assertRaisesOpError("shape"):
                tf.ones((2, 3)) @ tf.ones((2, 3))

    with pytest.raises(UnsupportedError, match="graph=None"):
        with tf.test.TestCase().session(graph=3):
            pass
    assert CustomTest("test_values").run().wasSuccessful()
    assert tf.test.is_gpu_available(cuda_only=True) in (True, False)


def test_effects_happen_in_each_call(capfd):
    calls = []

    @tf.function
    def printing():
        tf.print("here")

    @tf.function
    def calling(n):
        return tf.py_function(lambda x: calls.append(int(x)) or x, [n], tf.int32)

    with pytest.warns(UserWarning, match="runs eagerly"):
        printing()
    printing()
    assert capfd.readouterr().err == "here\nhere\n"
    with pytest.warns(UserWarning, match="runs eagerly"):
        calling(1)
    calling(1)
    assert calls == [1, 1]


def test_gradient_of_a_variable_with_respect_to_itself():
    v = tf.Variable([2.0, 3.0])
    with tf.GradientTape() as tape:
        y = v
    assert tape.gradient(y, v).numpy().tolist() == [1.0, 1.0]
    core_variable = toolkit.Variable([2.0])
    with toolkit.GradientTape(persistent=True) as tape:
        z = core_variable * 3.0
    assert tape.gradient(core_variable, core_variable).tolist() == [1.0]
    assert tape.gradient([core_variable, z], core_variable).tolist() == [4.0]
    still = toolkit.Variable([2.0], trainable=False)
    with toolkit.GradientTape() as tape:
        pass
    assert tape.gradient(still, still) is None


def test_complex_numbers_match_python():
    assert tf.Variable([4 + 3j]).dtype == tf.Variable(1j).dtype == tf.complex128
    assert tf.Variable(np.array([1j], "complex64")).dtype == tf.complex64


def test_missing_devices_are_refused():
    assert tf.config.get_soft_device_placement()
    with tf.device("/GPU:77"):
        v = tf.Variable(1.0)
        assert v.device == tf.constant(1.0).device
        assert v.device == "/job:localhost/replica:0/task:0/device:CPU:0"
    with pytest.raises(DeviceError):
        tf.device("/no device")
    tf.config.set_soft_device_placement(False)
    try:
        with pytest.raises(DeviceError):
            tf.device("/GPU:77")
    finally:
        tf.config.set_soft_device_placement(True)


def test_default_summary_writers(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    assert not tf.summary.scalar("a", 1.0, step=0)
    writer.set_as_default(step=3)
    try:
        assert tf.summary.should_record_summaries() and tf.summary.scalar("a", 1.0)
        with tf.summary.record_if(False):
            assert not tf.summary.scalar("a", 1.0)
    finally:
        tf.summary._writers[0] = None
        tf.summary._step.clear()
    writer.close()


def test_small_names():
    assert tf.get_static_value(tf.constant([1, 2])).tolist() == [1, 2]
    static_values = []
    tf.function(lambda x: static_values.append(tf.get_static_value(x)) or x)(tf.ones(2))
    assert static_values == [None]
    assert tf.get_logger().name == "tensorflow"
    assert tf.compat.dimension_value(3) == 3 and tf.compat.dimension_value(None) is None
    assert tf.compat.as_bytes("é") == b"\xc3\xa9" and tf.compat.as_str(b"a") == "a"
    assert tf.compat.as_text("a") == "a" and tf.compat.as_str_any(3) == "3"
    assert tf.nest.flatten([1, [2]], expand_composites=True) == [1, 2]
    packed = tf.nest.pack_sequence_as(structure=[0, 0], flat_sequence=[1, 2])
    assert packed == [1, 2]
    optimizer = tf.keras.optimizers.get("adam")
    config = tf.keras.optimizers.serialize(optimizer)
    restored = tf.keras.optimizers.deserialize(config)
    assert type(restored) is type(optimizer) and restored.name == optimizer.name
    reduction = tf.keras.losses.Reduction
    assert tf.losses.Reduction is reduction and reduction.NONE == "none"
    loss = tf.keras.losses.MeanSquaredError(reduction=reduction.NONE)
    assert loss([[1.0], [2.0]], [[0.0], [0.0]]).numpy().tolist() == [1.0, 4.0]


def test_names_of_tensorflow_1(tmp_path):
    v1 = tf.compat.v1
    v1.enable_resource_variables()
    path = str(tmp_path / "a.txt")
    with v1.gfile.GFile(path, "w") as file:
        file.write("a")
    assert v1.gfile.Exists(path) and v1.gfile.Glob(f"{tmp_path}/*") == [path]
    with v1.python_io.TFRecordWriter(str(tmp_path / "b")) as writer:
        feature = v1.train.Feature(int64_list=v1.train.Int64List(value=[1]))
        features = v1.train.Features(feature={"x": feature})
        writer.write(v1.train.Example(features=features).SerializeToString())
    (message,) = tf.data.TFRecordDataset(str(tmp_path / "b"))
    parsed = v1.parse_single_example(message, {"x": v1.FixedLenFeature([], tf.int64)})
    assert int(parsed["x"]) == 1


def test_models_in_new_folders(tmp_path):
    model = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1)])
    model.save(tmp_path / "new" / "m.h5")
    assert (tmp_path / "new" / "m.h5").exists()


def test_namespaces_can_be_imported():
    from toolkit.compat.tensorflow.config.experimental import set_memory_growth
    from toolkit.compat.tensorflow.io.gfile import GFile
    from toolkit.compat.tensorflow.python.keras import Model
    from toolkit.compat.tensorflow.python.keras.layers import Dense
    from toolkit.compat.tensorflow.python.keras.preprocessing.image import load_img
    from toolkit.compat.tensorflow.test import TestCase
    from toolkit.compat.tensorflow.train import Example, Feature

    assert set_memory_growth is tf.config.experimental.set_memory_growth
    assert GFile is tf.io.gfile.GFile and TestCase is tf.test.TestCase
    assert Model is tf.keras.Model and Dense is tf.keras.layers.Dense
    assert load_img is tf.keras.preprocessing.image.load_img
    assert (Example, Feature) == (tf.train.Example, tf.train.Feature)
    with pytest.raises(ModuleNotFoundError):
        __import__("toolkit.compat.tensorflow.python.zebra")
    with pytest.raises(ImportError):
        from toolkit.compat.tensorflow.train import Zebra  # noqa: F401


def test_attributes_of_shapes_and_specs():
    shape = tf.TensorShape([2, None])
    assert shape.with_rank(2) == shape.with_rank_at_least(1) == shape
    assert shape.with_rank_at_most(2) == shape and shape.assert_has_rank(2) is None
    for call in (
        lambda: shape.with_rank(1),
        lambda: shape.with_rank_at_least(3),
        lambda: shape.with_rank_at_most(1),
        lambda: shape.assert_has_rank(3),
        shape.assert_is_fully_defined,
    ):
        with pytest.raises(ShapeError):
            call()
    spec = tf.TensorSpec([None, 3], tf.float32, "x")
    assert spec.is_compatible_with(tf.ones((2, 3)))
    assert not spec.is_compatible_with(tf.ones((2, 4)))
    assert not spec.is_compatible_with(tf.ones((2, 3), tf.int32))
    assert tf.TensorSpec.from_spec(spec, "y") == tf.TensorSpec(
        [None, 3], "float32", "y"
    )
    elements = iter(tf.data.Dataset.range(4).batch(2))
    assert elements.element_spec == tf.TensorSpec([None], tf.int64)
