"""The process of a peer: `peers_worker.py NAME`, in the environment that has it.

Nothing of a peer is imported before it is measured.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter

# At the end of the path: the peers' environments have no toolkit of their own.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from toolkit.bench.measure import KINDS
from toolkit.bench.processes import serve
from toolkit.bench.worker import QUICK
from toolkit.bench.workloads import ALL


def with_keras(name, workload):
    """The suite's own code, on the backend that KERAS_BACKEND names."""
    return KINDS[workload.kind].prepare(workload, "keras")


def with_keras_on_torch(name, workload):
    """The same; the fairest call is one that records nothing for gradients."""
    if workload.kind == "call":
        import_module("torch").set_grad_enabled(False)
    return with_keras(name, workload)


def with_torch(name, workload, compiled=False):
    """torch by hand."""
    network, _, _ = name.partition("/")
    if not workload.kind.startswith("start"):
        return import_module("peers_torch").prepare(network, workload, compiled)

    def sample():
        start = perf_counter()
        import_module("peers_torch").first_step(network, workload)
        return perf_counter() - start

    return sample


def with_tensorflow(name, workload):
    """A tf.function by hand."""
    return import_module("peers_forward").with_tensorflow(workload)


def with_jax(name, workload):
    """A jax.jit function by hand."""
    return import_module("peers_forward").with_jax(workload)


@dataclass(frozen=True)
class Peer:
    """A library, and how it is used.

    prepare: (name of the workload, workload) to the function that takes a sample.
    folder: its environment among those that make_peers.sh makes.
    kinds: the kinds of workload to which it has an answer.
    """

    prepare: Callable
    folder: str
    kinds: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


START = ("start_cold", "start_warm")
OF_KERAS = ("fit", "predict", "call", "memory", *START)
OF_TORCH = ("fit", "predict", "call", "function", "memory", *START)
COMPILED = ("fit", "predict", "function")  # it takes half a minute to start

# JAX keeps what it has compiled only where told to; torch.compile does by itself.
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


def prepare(peer: str, name: str) -> Callable[[], float]:
    """The function that takes a sample of a workload."""
    workload = ALL[name].shortened() if QUICK in sys.argv else ALL[name]
    return PEERS[peer].prepare(name, workload)


if __name__ == "__main__":
    serve(partial(prepare, sys.argv[1]))
