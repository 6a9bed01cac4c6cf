"""Train a graph of TensorFlow 1 with parameter servers, in several processes.

    python examples/cluster/parameter_server.py --workers 2

This starts one parameter server and two workers on this machine. The server stores the
Variables, and each worker reads different batches. By default the workers do not wait.
With --aggregate, a step computes the mean of that number of gradients, in the order of
their arrival. A worker that ends does not stop the rest. On several machines, start
each process separately, with the addresses of the server and the workers:

    python examples/cluster/parameter_server.py --job ps --cluster a:22 b:22 c:22
    python examples/cluster/parameter_server.py --job worker --task 0 --cluster ...
"""

import argparse
import socket
import subprocess
import sys
import time

import numpy as np

import toolkit.compat.tensorflow.v1 as tf
from toolkit.datasets import digits

BATCH = 32


def build(images, labels):
    """Return the logits of (batch, 8, 8) images, and the loss."""
    x = tf.reshape(images, (-1, 8, 8, 1)) / 16.0
    for filters in (16, 32):
        x = tf.layers.conv2d(x, filters, 3, padding="same", activation=tf.nn.relu)
        x = tf.layers.max_pooling2d(x, 2, 2)
    x = tf.layers.dense(tf.layers.flatten(x), 64, activation=tf.nn.relu)
    logits = tf.layers.dense(x, 10)
    return logits, tf.losses.sparse_softmax_cross_entropy(labels, logits)


def work(cluster, task, steps, aggregate):
    """Train until all workers together have run the requested steps."""
    server = tf.train.Server(cluster, "worker", task)
    worker = f"/job:worker/task:{task}"
    with tf.device(
        tf.train.replica_device_setter(cluster=cluster, worker_device=worker)
    ):
        images = tf.placeholder("float32", (None, 8, 8))
        labels = tf.placeholder("int32", (None,))
        logits, loss = build(images, labels)
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdamOptimizer(2e-3)
        if aggregate:
            workers = cluster.num_tasks("worker")
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, aggregate, workers)
        train = optimizer.minimize(loss, step)
    accuracy_op = tf.reduce_mean(
        tf.cast(tf.equal(tf.argmax(logits, 1, "int32"), labels), "float32")
    )

    (x_train, y_train), (x_test, y_test) = digits.load_data()
    rng = np.random.default_rng(task)
    global_step = reports = 0
    with tf.Session(server.target) as session:
        if task == 0:
            session.run(tf.global_variables_initializer())
        uninitialized = tf.report_uninitialized_variables()
        while session.run(uninitialized).size:
            time.sleep(0.05)
        while global_step < steps:
            rows = rng.integers(len(x_train), size=BATCH)
            feeds = {images: x_train[rows], labels: y_train[rows]}
            _, global_step, loss_value = session.run([train, step, loss], feeds)
            if global_step // 50 > reports:
                reports = global_step // 50
                print(
                    f"worker {task}: step {global_step}, loss {loss_value:.3f}",
                    flush=True,
                )
        accuracy = session.run(accuracy_op, {images: x_test, labels: y_test})
    print(f"worker {task}: test accuracy {accuracy:.4f}", flush=True)


def start_all(options):
    """Start a parameter server and workers on this machine; wait for the workers."""
    probes = [
        socket.create_server(("127.0.0.1", 0)) for _ in range(options.workers + 1)
    ]
    addresses = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    common = [
        sys.executable,
        __file__,
        "--steps",
        str(options.steps),
        "--cluster",
        *addresses,
    ]
    jobs = [("ps", 0), *(("worker", i) for i in range(options.workers))]
    ps, *workers = [
        subprocess.Popen([*common, "--job", job, "--task", str(task)])
        for job, task in jobs
    ]
    codes = [process.wait() for process in workers]
    ps.terminate()
    ps.wait()
    return max(codes)


def main(arguments=None):
    """Run one task, or start all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--aggregate", type=int, default=0, help="gradients of a step")
    parser.add_argument("--job", choices=("ps", "worker"))
    parser.add_argument("--task", type=int, default=0)
    parser.add_argument(
        "--cluster", nargs="+", help="addresses: the server's, the workers'"
    )
    options = parser.parse_args(arguments)
    if options.job is None:
        return start_all(options)
    cluster = tf.train.ClusterSpec(
        {"ps": options.cluster[:1], "worker": options.cluster[1:]}
    )
    tf.disable_eager_execution()
    if options.job == "ps":
        tf.train.Server(cluster, "ps", options.task).join()
    work(cluster, options.task, options.steps, options.aggregate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
