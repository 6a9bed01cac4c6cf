"""Test strategies of TensorFlow that would train separate models."""

import json

import pytest

import toolkit.compat.tensorflow as tf
from tests.distribution.jobs import run
from toolkit.errors import ArgumentError, UnsupportedError

STRATEGIES = {
    "MirroredStrategy": tf.distribute.MirroredStrategy,
    "MultiWorkerMirroredStrategy": tf.distribute.MultiWorkerMirroredStrategy,
    "OneDeviceStrategy": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "CentralStorageStrategy": tf.distribute.experimental.CentralStorageStrategy,
}


def cluster(**jobs):
    return json.dumps({"cluster": jobs, "task": {"type": "worker", "index": 0}})


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_cluster_of_several_workers_is_refused(name, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", cluster(worker=["a:1", "b:1"]))
    with pytest.raises(UnsupportedError, match=f"{name}: TF_CONFIG names 2 workers"):
        STRATEGIES[name]()
    monkeypatch.setenv("TF_CONFIG", cluster(chief=["a:1"], worker=["b:1", "c:1"]))
    with pytest.raises(UnsupportedError, match="3 workers"):
        STRATEGIES[name]()


@pytest.mark.parametrize("config", ["", "{}", cluster(), cluster(worker=["a:1"])])
def test_a_cluster_of_one_worker_is_supported(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    for create in STRATEGIES.values():
        assert create().num_replicas_in_sync == 1


@pytest.mark.parametrize("config", ["{", "3", '{"cluster": 3}'])
def test_a_wrong_cluster_is_refused(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ArgumentError, match="TF_CONFIG: expected JSON"):
        tf.distribute.MirroredStrategy()


def test_a_strategy_in_a_job_needs_a_distribution(tmp_path):
    text = """
    import toolkit.compat.tensorflow as tf
    try:
        tf.distribute.MirroredStrategy()
    except tf.errors.UnimplementedError as error:
        message = str(error)
    distribution.set_distribution(distribution.DataParallel())
    with tf.distribute.MirroredStrategy().scope():
        model = network()
    x = np.arange(32, dtype="float32").reshape(8, 4)
    model.fit(x, x[:, :1], verbose=0)
    graph_message = ""
    with tf.Graph().as_default():
        v = tf.compat.v1.get_variable("v", (2,))
        try:
            tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(v * v)
        except tf.errors.InvalidArgumentError as error:
            graph_message = str(error)
    tell([message, state_of(model), graph_message])
    """
    first, second = run(tmp_path, 2, text)
    assert first == second
    assert "MirroredStrategy: this job has 2 processes" in first[0]
    assert "GradientDescent.apply_gradients: each of the 2 processes" in first[2]
