"""Process of a peer: `peers_worker.py NAME`, in the peer's environment.

It imports nothing of a peer before the measurement.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter

# At the end of the path: the peers' environments contain no toolkit.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from toolkit.bench.measure import KINDS
from toolkit.bench.processes import serve
from toolkit.bench.worker import QUICK
from toolkit.bench.workloads import ALL


def with_keras(name, workload):
    """Run the suite's own code, on the backend in KERAS_BACKEND."""
    return KINDS[workload.kind].prepare(workload, "keras")


def with_keras_on_torch(name, workload):
    """Run the same on torch, without gradient recording in calls."""
    if workload.kind == "call":
        import_module("torch").set_grad_enabled(False)
    return with_keras(name, workload)


def with_keras_on_toolkit(name, workload):
    """Run the same on toolkit as the backend of Keras."""
    import_module("keras_toolkit")
    return with_keras(name, workload)


def with_torch(name, workload, compiled=False):
    """Run handwritten torch."""
    network, _, _ = name.partition("/")
    if not workload.kind.startswith("start"):
        return import_module("peers_torch").prepare(network, workload, compiled)

    def sample():
        start = perf_counter()
        import_module("peers_torch").first_step(network, workload)
        return perf_counter() - start

    return sample


def with_tensorflow(name, workload):
    """Run a handwritten tf.function."""
    return import_module("peers_forward").with_tensorflow(workload)


def with_jax(name, workload):
    """Run a handwritten jax.jit function."""
    return import_module("peers_forward").with_jax(workload)


@dataclass(frozen=True)
class Peer:
    """Library, and its mode of use.

    prepare: a function from (name of the workload, workload) to the sampling function.
    folder: its environment in the output of make_peers.sh. kinds: the workload kinds
    that it supports.
    """

    prepare: Callable
    folder: str
    kinds: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


START = ("start_cold", "start_warm")
OF_KERAS = ("fit", "predict", "call", "memory", *START)
OF_TORCH = ("fit", "predict", "call", "function", "memory", *START)
COMPILED = ("fit", "predict", "function")  # it takes half a minute to start

# JAX stores compiled code only on request; torch.compile does by default.
JAX = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

PEERS = {
    "Keras/TensorFlow": Peer(
        with_keras, "tensorflow", OF_KERAS, {"KERAS_BACKEND": "tensorflow"}
    ),
    "Keras/torch": Peer(
        with_keras_on_torch, "torch", OF_KERAS, {"KERAS_BACKEND": "torch"}
    ),
    "Keras/JAX": Peer(with_keras, "jax", OF_KERAS, {"KERAS_BACKEND": "jax"} | JAX),
    "torch": Peer(with_torch, "torch", OF_TORCH),
    "torch.compile": Peer(partial(with_torch, compiled=True), "torch", COMPILED),
    "tf.function": Peer(with_tensorflow, "tensorflow", ("function",)),
    "jax.jit": Peer(with_jax, "jax", ("function",)),
}
# It is no peer: keras_backend.py compares it with the backends of Keras.
KERAS_BACKEND = "Keras/toolkit"
WORKERS = PEERS | {KERAS_BACKEND: Peer(with_keras_on_toolkit, "toolkit", OF_KERAS)}


def prepare(name_of_peer: str, name: str) -> Callable[[], float]:
    """Return the sampling function of a workload."""
    workload = ALL[name].shorten() if QUICK in sys.argv else ALL[name]
    return WORKERS[name_of_peer].prepare(name, workload)


if __name__ == "__main__":
    serve(partial(prepare, sys.argv[1]))
