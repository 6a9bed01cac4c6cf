"""Isolated checks of each library call of networks, compared with NumPy.

A library error for one of many shapes can be invisible in a training step.
"""

import numpy as np
from gpu_fits import distance
from gpu_profile import Watch
from gpu_rehearsal import size

import toolkit
from toolkit import dtypes
from toolkit.backends import get_backend
from toolkit.backends.cupy.steps import Dnn, Product

# Networks with many kinds of convolutions, and the extents of their images.
NETWORKS = size(
    {"EfficientNetV2B0": 32, "MobileNetV3Small": 32, "ResNet50": 32, "Xception": 71},
    {"MobileNetV3Small": 32},
)
POLICIES = ("float32", "mixed_bfloat16")
# Maximum norm of a difference, relative to the norm of the expected result.
LIMITS = {"float32": 1e-4, "bfloat16": 2e-2}
WORKSPACE = 64 << 20


class _ImmediateStream:
    """Device of host memory, as the environment of a single call."""

    depth, stream = 1, None

    def __init__(self):
        self.log = []

    def submit(self, stream, description, work):
        work()


def calls(save):
    """Save the error of each call in the networks' forward and backward passes."""
    results, watch = {}, Watch()
    for network, extent in NETWORKS.items():
        for policy in POLICIES:
            watch.runners.clear()
            _train(network, extent, policy)
            steps = (s for r in watch.runners for _, s in r.program.steps)
            checked = {_name_of(s): s for s in steps if isinstance(s, (Dnn, Product))}
            errors = {str(call): error(call) for call in checked if _is_checked(call)}
            wrong = {
                name: worst
                for name, (worst, limit) in errors.items()
                if not worst <= limit
            }
            results[f"{network} {policy}"] = {"calls": len(errors), "wrong": wrong}
            save(results)
    return results, not any(row["wrong"] for row in results.values())


def _name_of(step):
    return step.signature if isinstance(step, Dnn) else step.gemm


def _is_checked(call):
    """Return whether random operands are valid; attention gradients need real rows."""
    return not hasattr(call, "nodes") or call.nodes[0].op != "sdpa_backward"


def _train(network, extent, policy):
    """Run a training step on the GPU."""
    toolkit.utils.set_random_seed(0)
    toolkit.config.set_dtype_policy(policy)
    try:
        make = getattr(toolkit.applications, network)
        model = make(weights=None, input_shape=(extent, extent, 3), classes=5)
        model.compile("sgd", "sparse_categorical_crossentropy")
        x = np.random.default_rng(0).random((2, extent, extent, 3), "float32")
        with toolkit.device("gpu:0"):
            model.train_on_batch(x, np.array([1, 3], "int32"))
    finally:
        toolkit.config.set_dtype_policy(None)


def error(call):
    """Return the largest error of a call on random operands, and its limit."""
    from tests.backends.cupy import host

    backend, rng = get_backend("cupy"), np.random.default_rng(1)
    device, is_graph = backend.device, hasattr(call, "nodes")
    kinds = _dtypes(call)
    initial = [
        _random_array(rng, nbytes, kind)
        for nbytes, kind in zip(call.sizes, kinds, strict=True)
    ]
    expected = [x.copy() for x in initial]
    with device.scope():
        placed = [backend.memory.asarray(x) for x in initial]
        scratch = device.address(backend.memory.empty((WORKSPACE,), "uint8"))
        pointers = tuple(map(device.address, placed))
        if is_graph:
            device.dnn(call, WORKSPACE)(pointers, scratch)
        else:
            device.product(call, pointers, WORKSPACE // 2)(pointers, scratch)
        device.synchronize()
    addresses = tuple(x.ctypes.data for x in expected)
    if is_graph:
        host.Convolution(_ImmediateStream(), call, 0).work(addresses)
    else:
        host.multiply(call, addresses)
    outputs = map(backend.memory.to_numpy, placed)
    worst = max(map(_distance, outputs, expected, initial))
    return worst, LIMITS[kinds[0]]


def _dtypes(call):
    """Return the dtype of each operand of a call."""
    if hasattr(call, "nodes"):
        return [t.dtype for t in sorted(call.tensors, key=lambda t: t.uid) if t.uid]
    of_factors, of_results = call.dtypes
    is_mask = "relu" in call.epilogue
    extra_types = [
        "uint8" if n == "aux" and is_mask else of_results for n in call.extras
    ]
    return [of_factors, of_factors, of_results, *extra_types]


def _random_array(rng, nbytes, dtype):
    """Return a random array of `nbytes` bytes."""
    kind = dtypes.numpy_dtype(dtype)
    count = nbytes // kind.itemsize
    if dtype == "uint8":
        return rng.integers(0, 256, count).astype(kind)
    return rng.standard_normal(count, "float32").astype(kind)


def _distance(actual, expected, before):
    """Return the norm of a difference relative to the norm of the expected array."""
    if np.array_equal(expected, before):
        return 0.0 if np.array_equal(actual, before) else float("inf")
    actual = distance([actual.astype("float64")], [expected.astype("float64")])
    return actual if actual < float("inf") else float("inf")  # `max` ignores NaN
