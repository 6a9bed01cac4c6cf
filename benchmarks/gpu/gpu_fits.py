"""Complete training runs on a GPU: accuracy and reproducibility."""

import hashlib

import numpy as np
from gpu_rehearsal import size

import toolkit
from toolkit.backends import get_backend

GPU, CPU = "gpu:0", "cpu:0"
# Maximum relative errors against float64 on the CPU: of outputs and loss, of all
# gradients as one vector, and of each gradient alone. Half precision accumulates
# rounding errors in the gradients. The gradient of batch normalization cancels most of
# its input: before it, up to a fifth of a bfloat16 gradient is rounding error.
LIMITS = {
    "float32": (1e-5, 1e-5, 1e-4),
    "tf32": (1e-2, 1e-2, 1e-1),
    "mixed_bfloat16": (1e-2, 1e-1, 3e-1),
}
# Maximum relative differences of the losses of complete runs between the two devices.
LOSSES = {
    "float32": 1e-3,
    "mixed_bfloat16": 5e-2,
    "tf32": 2e-2,
    "mixed_float16": 2e-2,
}
IMAGES, BATCH = size((256, 32), (16, 8))


def set_precision(name):
    """Set the dtype policy of a name; tf32 sets the precision of products instead."""
    toolkit.config.set_matmul_precision("tf32" if name == "tf32" else "strict")
    return "float32" if name == "tf32" else name


def images(count):
    """Return random images and their labels."""
    rng = np.random.default_rng(0)
    x = rng.random((count, 32, 32, 3), dtype="float32")
    return x, rng.integers(0, 10, count).astype("int32")


def cnn(policy):
    """Build a convolutional network with all weights from one seed."""
    layers = toolkit.layers
    toolkit.utils.set_random_seed(1)
    toolkit.config.set_dtype_policy(policy)
    try:
        return toolkit.Sequential(
            [
                layers.Input((32, 32, 3)),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Conv2D(64, 3, strides=2, use_bias=False),
                layers.BatchNormalization(),
                layers.MaxPooling2D(),
                layers.SeparableConv2D(64, 3, activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(128, activation="gelu"),
                layers.LayerNormalization(),
                layers.Dense(10, dtype="float64" if policy == "float64" else "float32"),
            ]
        )
    finally:
        toolkit.config.set_dtype_policy(None)


def _loss():
    return toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)


def _gradients(model, x, y):
    """Return the outputs, the loss and its gradients."""
    loss = _loss()

    @toolkit.function
    def compute(x, y):
        with toolkit.GradientTape() as tape:
            outputs = model(x, training=True)
            value = loss(y, outputs)
        return outputs, value, *tape.gradient(value, model.trainable_variables)

    return [np.asarray(a.numpy(), "float64") for a in compute(x, y)]


def _error(actual, expected):
    """Return the maximum difference relative to the maximum value."""
    scale = np.abs(expected).max() or 1.0
    return float(np.abs(actual - expected).max() / scale)


def distance(actual, expected):
    """Return the norm of the difference of vectors relative to the expected norm."""
    a, e = (
        np.concatenate([x.ravel() for x in arrays]) for arrays in (actual, expected)
    )
    return float(np.linalg.norm(a - e) / np.linalg.norm(e))


def accuracy(save):
    """Save the errors of outputs and gradients in each precision, against float64."""
    x, y = images(size(16, 4))
    exact = cnn("float64")
    expected = _gradients(exact, x.astype("float64"), y)
    errors = {}
    for name, limits in LIMITS.items():
        model = cnn(set_precision(name))
        model.set_weights([w.astype("float32") for w in exact.get_weights()])
        with toolkit.device(GPU):
            errors_found = _gradients(model, x, y)
        pairs = list(zip(errors_found, expected, strict=True))
        worst = max(_error(a, e) for a, e in pairs[:2])
        gradients = distance(errors_found[2:], expected[2:])
        single = max(distance([a], [e]) for a, e in pairs[2:])
        errors_found = worst, gradients, single
        errors[name] = {
            "results, all gradients, the worst": errors_found,
            "limits": limits,
            "passed": all(
                e <= limit for e, limit in zip(errors_found, limits, strict=True)
            ),
        }
        save(errors)
    return errors, all(row["passed"] for row in errors.values())


def trained(name, device=GPU, captures=True):
    """Train for two epochs.

    Args:
        name: a key of `LOSSES`.
        device: the device.
        captures: whether steps on a GPU are captured.

    Returns:
        A hash of the weights, and the losses of the epochs.
    """
    policy = set_precision(name)
    gpu_device = get_backend("cupy").device
    gpu_device.captures = captures
    try:
        model = cnn(policy)
        model.compile("adam", _loss())
        with toolkit.device(device):
            x, y = images(IMAGES)
            losses = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
        content = b"".join(w.tobytes() for w in model.get_weights())
        return hashlib.sha256(content).hexdigest(), losses["loss"]
    finally:
        gpu_device.captures = True


def fits(save):
    """Check that captured and uncaptured steps agree, and that runs are reproducible.

    The losses must also be close to the losses on the CPU.
    """
    results = {}
    for name, limit in LOSSES.items():
        bits, losses = trained(name)
        expected = trained(name, CPU)[1]
        error = _error(np.array(losses), np.array(expected))
        results[name] = {
            "captured as started one by one": bits == trained(name, captures=False)[0],
            "same seed, same bits": bits == trained(name)[0],
            "losses as on the processor": error <= limit,
            "error, limit": (error, limit),
            "losses": (losses, expected),
        }
        save(results)
    checks = (
        v for row in results.values() for v in row.values() if isinstance(v, bool)
    )
    return results, all(checks)
