"""Test strategies of TensorFlow that would train separate models."""

import json

import numpy as np
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
SLOW = {"timeout": 100, "seconds": 300}  # limits for a busy machine


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
    first, second = run(tmp_path, 2, text, **SLOW)
    assert first == second
    assert "MirroredStrategy: this job has 2 processes" in first[0]
    assert "GradientDescent.apply_gradients: each of the 2 processes" in first[2]


GUIDE = """
    # The example of TensorFlow's guide to custom training with strategies.
    import toolkit.compat.tensorflow as tf
    if "alone" not in sys.argv:
        distribution.set_distribution(distribution.DataParallel(shards=4))
    tf.random.set_seed(0)
    rng = np.random.default_rng(0)
    train_images = rng.random((60, 6, 6, 1), "float32")
    train_labels = rng.integers(0, 3, 60)

    strategy = tf.distribute.MirroredStrategy()
    GLOBAL_BATCH_SIZE = 8 * strategy.num_replicas_in_sync
    train_dataset = tf.data.Dataset.from_tensor_slices(
        (train_images, train_labels)
    ).shuffle(60, seed=3).batch(GLOBAL_BATCH_SIZE)
    test_dataset = tf.data.Dataset.from_tensor_slices(
        (train_images[:13], train_labels[:13])
    ).batch(GLOBAL_BATCH_SIZE)
    train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
    test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)

    with strategy.scope():
        loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        )

        def compute_loss(labels, predictions, model_losses):
            per_example_loss = loss_object(labels, predictions)
            loss = tf.nn.compute_average_loss(
                per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE
            )
            if model_losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
            return loss

        test_loss = tf.keras.metrics.Mean(name="test_loss")
        train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        model = tf.keras.Sequential([
            tf.keras.layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(3),
        ])
        optimizer = tf.keras.optimizers.Adam(0.01)

    def train_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = compute_loss(labels, predictions, model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs):
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    def distributed_train_step(dataset_inputs):
        per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
        return strategy.reduce(
            tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None
        )

    def distributed_test_step(dataset_inputs):
        return strategy.run(test_step, args=(dataset_inputs,))

    if "eager" not in sys.argv:
        distributed_train_step = tf.function(distributed_train_step)
        distributed_test_step = tf.function(distributed_test_step)

    results = []
    for epoch in range(2):
        total_loss, num_batches = 0.0, 0
        for x in train_dist_dataset:
            total_loss += distributed_train_step(x)
            num_batches += 1
        for x in test_dist_dataset:
            distributed_test_step(x)
        metrics = train_accuracy, test_loss, test_accuracy
        results.append([float(total_loss / num_batches)])
        for metric in metrics:
            results[-1].append(float(metric.result()))
            metric.reset_state()
    tell([digest(*model.get_weights()), results])
"""


def test_the_guide_of_custom_training_gives_equal_bits(tmp_path):
    expected = run(tmp_path, 1, GUIDE, **SLOW)
    assert run(tmp_path, 2, GUIDE, **SLOW) == expected * 2


@pytest.mark.slow
def test_the_guide_gives_equal_bits_in_four_processes(tmp_path):
    expected = run(tmp_path, 1, GUIDE, **SLOW)
    assert run(tmp_path, 4, GUIDE, **SLOW) == expected * 4


@pytest.mark.slow
def test_the_guide_without_tf_function_or_distribution(tmp_path):
    ((bits, results),) = run(tmp_path, 1, GUIDE, **SLOW)
    assert run(tmp_path, 2, GUIDE, "eager", **SLOW) == [[bits, results]] * 2
    # Without a distribution, sums over a batch are added in another order.
    ((_, alone),) = run(tmp_path, 1, GUIDE, "alone", **SLOW)
    np.testing.assert_allclose(results, alone, rtol=1e-4)


def test_values_of_a_strategy_are_global(tmp_path):
    text = """
    import toolkit.compat.tensorflow as tf
    distribution.set_distribution(distribution.DataParallel())
    strategy = tf.distribute.MirroredStrategy()
    rows = np.arange(10, dtype="float32").reshape(5, 2)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(3)
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.DATA
    dataset = dataset.with_options(options)

    @tf.function
    def centered(x):
        if tf.reduce_sum(x) > 20.0:
            x = x - tf.reduce_mean(x, 0)
        context = tf.distribute.get_replica_context()
        return x, context.all_reduce("SUM", tf.reduce_sum(x))

    from_function = strategy.distribute_datasets_from_function(
        lambda context: dataset.shard(
            context.num_input_pipelines, context.input_pipeline_id
        )
    )
    results = []
    for x in (*strategy.experimental_distribute_dataset(dataset), *from_function):
        values, total = strategy.run(centered, args=(x,))
        results.append([
            values.numpy().tolist(),
            float(total),
            float(strategy.reduce("SUM", x, axis=None)[0, 0]),
            strategy.reduce(tf.distribute.ReduceOp.MEAN, x, axis=0).numpy().tolist(),
            strategy.gather(x, axis=0).numpy().tolist(),
            strategy.experimental_local_results(total)[0].numpy().tolist(),
        ])

    def refused(call):
        try:
            call()
        except (ValueError, NotImplementedError) as error:
            return str(error)

    def with_values(x):
        return tf.py_function(lambda v: v.numpy(), [x], tf.float32)

    def run_eagerly():
        tf.config.run_functions_eagerly(True)
        try:
            return strategy.run(centered, args=(x,))
        finally:
            tf.config.run_functions_eagerly(False)

    options.experimental_distribute.auto_shard_policy = policy.OFF
    tell([results, [
        refused(lambda: dataset.with_options(options)),
        refused(run_eagerly),
        refused(lambda: strategy.run(with_values, args=(x,))),
    ]])
    """
    (single,) = run(tmp_path, 1, text, **SLOW)
    reports = run(tmp_path, 2, text, **SLOW)
    for results, (policy, eagerly, values) in reports:
        np.testing.assert_allclose(np.ravel(flat(results)), np.ravel(flat(single[0])))
        assert "AutoShardPolicy.OFF is not supported" in policy
        assert "run_functions_eagerly" in eagerly
        assert "with_values: expected a function that is traced" in values


def flat(nest):
    return [y for x in nest for y in flat(x)] if isinstance(nest, list) else [nest]


def test_contexts_of_replicas():
    strategy = tf.distribute.MirroredStrategy()
    assert tf.distribute.get_replica_context().num_replicas_in_sync == 1
    contexts = []

    def merged(strategy_of_call, value):
        contexts.append(tf.distribute.in_cross_replica_context())
        return strategy_of_call.reduce("SUM", value, axis=0)

    def step(x):
        context = tf.distribute.get_replica_context()
        contexts.append(tf.distribute.in_cross_replica_context())
        assert context.strategy is tf.distribute.get_strategy() is strategy
        assert context.replica_id_in_sync_group == 0
        return context.merge_call(merged, args=(context.all_gather(x, axis=0),))

    with strategy.scope():
        assert tf.distribute.get_replica_context() is None
        assert tf.distribute.in_cross_replica_context()
        for call in (strategy.run, tf.function(strategy.run)):
            assert float(call(step, args=(tf.constant([1.0, 2.0]),))) == 3
    assert contexts == [False, True] * 2
    values = strategy.experimental_distribute_values_from_function(
        lambda context: context.replica_id_in_sync_group + 7
    )
    assert values == 7


def test_control_flow_in_a_step_depends_on_tensors():
    strategy = tf.distribute.MirroredStrategy()

    def step(x):
        if tf.reduce_sum(x) > 2.0:
            return x * 10.0
        return x

    @tf.function
    def run_step(x):
        return strategy.run(step, args=(x,))

    assert [float(run_step(tf.constant(x))) for x in (1.0, 3.0)] == [1.0, 30.0]


def test_options_of_distributed_data_sets():
    experimental = tf.data.experimental
    options = tf.data.Options()
    assert options.experimental_distribute.auto_shard_policy == 0
    for policy in ("AUTO", "DATA", "FILE", "OFF"):
        value = experimental.AutoShardPolicy[policy]
        options.experimental_distribute.auto_shard_policy = value
        assert list(tf.data.Dataset.range(2).with_options(options)) == [0, 1]
    options.deterministic = False
    merged = tf.data.Options().merge(options)
    assert merged.experimental_distribute.auto_shard_policy == value
    assert merged.deterministic is False
    assert options.merge(tf.data.Options()).experimental_distribute is (
        options.experimental_distribute
    )
    for wrong, error in ((7, ArgumentError), (3, UnsupportedError)):
        with pytest.raises(error, match="AutoShardPolicy"):
            options.experimental_distribute.auto_shard_policy = wrong
    with pytest.raises(UnsupportedError, match="num_devices"):
        experimental.DistributeOptions(num_devices=2)
    with pytest.raises(AttributeError, match="auto_shard_policy"):
        options.experimental_distribute.policy = 1
    with pytest.raises(ArgumentError, match="DistributeOptions"):
        options.experimental_distribute = 1
    with pytest.raises(UnsupportedError, match="experimental_slack"):
        options.experimental_slack = True
