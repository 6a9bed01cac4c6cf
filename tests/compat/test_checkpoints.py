"""Tests of checkpoints: values named by attributes, and restores of later objects."""

import subprocess
import sys

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import MissingFileError, ModelFileError

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.l1 = tf.keras.layers.Dense(3)

    def call(self, x):
        return self.l1(x)


def trained(path):
    """Return a network, its optimizer and the checkpoint that has saved them."""
    net, optimizer = Net(), tf.keras.optimizers.Adam(0.1)
    step = tf.Variable(1)
    checkpoint = tf.train.Checkpoint(step=step, optimizer=optimizer, net=net)
    manager = tf.train.CheckpointManager(checkpoint, path, max_to_keep=3)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(net(tf.ones((1, 2))))
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
    step.assign_add(3)
    manager.save()
    return net, optimizer, manager


def test_values_are_read_by_their_names(tmp_path):
    v, w = tf.Variable(3.0), tf.Variable([1.0, 2.0])
    path = tf.train.Checkpoint(v=v, w=w).save(tmp_path / "ck")
    reader = tf.train.load_checkpoint(tmp_path)
    assert reader.get_variable_to_shape_map()[f"w/{VALUE}"] == [2]
    assert reader.get_variable_to_dtype_map()[f"w/{VALUE}"] == tf.float32
    assert reader.has_tensor(f"v/{VALUE}") and reader.get_tensor(f"v/{VALUE}") == 3
    assert not reader.has_tensor("v")
    assert tf.train.load_variable(path, f"w/{VALUE}").tolist() == [1, 2]
    assert tf.train.list_variables(path)[1:] == [
        (f"v/{VALUE}", []),
        (f"w/{VALUE}", [2]),
    ]
    with pytest.raises(ModelFileError, match="not found"):
        reader.get_tensor("v")
    with pytest.raises(MissingFileError):
        tf.train.load_checkpoint(tmp_path / "nowhere")


def test_models_and_optimizers_that_are_built_later(tmp_path):
    net, optimizer, manager = trained(tmp_path)
    other, other_optimizer = Net(), tf.keras.optimizers.Adam(0.1)
    step = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(step=step, optimizer=other_optimizer, net=other)
    status = checkpoint.restore(manager.latest_checkpoint)
    assert int(step) == 4
    with pytest.raises(AssertionError):
        status.assert_consumed()
    x = tf.ones((1, 2))
    np.testing.assert_array_equal(other(x), net(x))
    other_optimizer.build(other.trainable_variables)
    for a, b in zip(optimizer.variables, other_optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, b)
    status.assert_consumed().assert_nontrivial_match()


def test_attributes_that_are_set_later(tmp_path):
    saved, restored = tf.Module(), tf.Module()
    saved.a = tf.Variable(5.0)
    path = tf.train.Checkpoint(h=saved).save(tmp_path / "x")
    status = tf.train.Checkpoint(h=restored).restore(path)
    restored.a = tf.Variable(0.0)
    assert float(restored.a) == 5
    status.assert_consumed()


def test_components_are_restored_by_other_objects(tmp_path):
    net, _, manager = trained(tmp_path)
    bias = tf.Variable(tf.zeros(3))
    partial = tf.train.Checkpoint(l1=tf.train.Checkpoint(bias=bias))
    status = tf.train.Checkpoint(net=partial).restore(manager.latest_checkpoint)
    np.testing.assert_array_equal(bias, net.l1.bias)
    assert status.expect_partial() is status
    status.assert_existing_objects_matched()
    other = tf.train.Checkpoint(unknown=tf.Variable(7.0))
    status = other.restore(manager.latest_checkpoint).expect_partial()
    with pytest.raises(AssertionError, match="unknown"):
        status.assert_existing_objects_matched()
    assert float(other.unknown) == 7


def test_lists_and_dicts_of_variables(tmp_path):
    saved, restored = tf.train.Checkpoint(), tf.train.Checkpoint()
    saved.listed = [tf.Variable(1.0)]
    saved.listed.append(tf.Variable(2.0))
    saved.mapped = {"one": saved.listed[0], "two": saved.listed[1]}
    path = saved.save(tmp_path / "x")
    v = tf.Variable(0.0)
    restored.mapped = {"two": v}
    restored.restore(path).expect_partial()
    assert float(v) == 2


def test_iterators_continue(tmp_path):
    numbers = iter(tf.data.Dataset.range(20).shuffle(5, seed=1).batch(2))
    checkpoint = tf.train.Checkpoint(step=tf.Variable(0), iterator=numbers)
    next(numbers)
    path = checkpoint.save(tmp_path / "x")
    remaining = [x.numpy().tolist() for x in numbers]
    checkpoint.restore(path)
    assert [x.numpy().tolist() for x in numbers] == remaining


def test_values_of_another_shape_are_refused(tmp_path):
    path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).save(tmp_path / "x")
    with pytest.raises(ModelFileError, match=r"expected shape \(3,\)"):
        tf.train.Checkpoint(v=tf.Variable(tf.zeros(3))).restore(path)


def test_managers_resume_from_earlier_checkpoints(tmp_path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    for _ in range(3):
        tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2).save()
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    assert manager.latest_checkpoint.endswith("ckpt-3")


_PARTIAL = """
import toolkit.compat.tensorflow as tf
path = tf.train.Checkpoint(a=tf.Variable(1), b=tf.Variable(2)).save({folder!r} + "/c")
first = tf.train.Checkpoint(a=tf.Variable(0))
first.restore(path)
second = tf.train.Checkpoint(b=tf.Variable(0))
second.restore(path).expect_partial()
"""


def test_values_without_an_object_are_reported_when_the_program_ends(tmp_path):
    program = _PARTIAL.format(folder=str(tmp_path))
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0
    assert "the values of b/.ATTRIBUTES" in run.stderr
    assert "values of a/" not in run.stderr and "Traceback" not in run.stderr


def test_a_file_without_names_of_attributes_restores_nothing_and_warns(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("w", (), initializer=tf.zeros_initializer())
        session.run(tf.compat.v1.global_variables_initializer())
        path = tf.compat.v1.train.Saver().save(session, str(tmp_path / "c"))
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with pytest.warns(UserWarning, match="restored nothing.* w"):
        checkpoint.restore(path).expect_partial()
