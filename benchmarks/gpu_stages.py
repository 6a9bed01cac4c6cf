"""The stages of gpu_check.py that are no tests: `gpu_stages.py NAME FOLDER`."""

import json
import sys
from pathlib import Path

import numpy as np

import toolkit
from toolkit.backends import get_backend
from toolkit.errors import BackendUnavailable

GPU = "gpu:0"
# The largest relative errors against float64 on the processor: of outputs and loss, and
# of all gradients as one vector, to which half precision adds up its roundings.
LIMITS = {
    "float32": (1e-5, 1e-5),
    "tf32": (1e-2, 1e-2),
    "mixed_bfloat16": (1e-2, 1e-1),
}


def facts(out):
    """The device, its libraries, and what cuDNN has to know of it to plan for it."""
    backend = get_backend("cupy")
    found = {**backend.describe(), "devices": toolkit.config.list_devices()}
    from toolkit.backends.cupy import cudnn

    try:
        with backend.device.scope():
            text = cudnn.frontend().create_device_properties(0).serialize()
    except BackendUnavailable as error:
        # All else goes on: convolutions as products of gathered windows, slowly.
        found["cudnn"] = f"MISSING: {error}"
    else:
        found["cudnn"] = cudnn.version()
        text = text if isinstance(text, str) else bytes(text).decode()
        (out / "device_properties.json").write_text(text, encoding="utf-8")
    return found, isinstance(found["cudnn"], int)


def _images(count):
    rng = np.random.default_rng(0)
    x = rng.random((count, 32, 32, 3), dtype="float32")
    return x, rng.integers(0, 10, count).astype("int32")


def _cnn(policy):
    """A convolutional network with all weights from one seed."""
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


def _gradients(model, x, y):
    """The outputs, the loss and its gradients."""
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)

    @toolkit.function
    def compute(x, y):
        with toolkit.GradientTape() as tape:
            outputs = model(x, training=True)
            value = loss(y, outputs)
        return outputs, value, *tape.gradient(value, model.trainable_variables)

    return [np.asarray(a.numpy(), "float64") for a in compute(x, y)]


def _error(found, expected):
    """The largest difference by the largest value."""
    scale = np.abs(expected).max() or 1.0
    return float(np.abs(found - expected).max() / scale)


def _distance(found, expected):
    """The length of the difference of vectors by that of the second."""
    a, e = (np.concatenate([x.ravel() for x in part]) for part in (found, expected))
    return float(np.linalg.norm(a - e) / np.linalg.norm(e))


def accuracy(out):
    """Errors of outputs and gradients in each precision, against float64."""
    x, y = _images(16)
    exact = _cnn("float64")
    expected = _gradients(exact, x.astype("float64"), y)
    errors = {}
    for name, limits in LIMITS.items():
        policy = "float32" if name == "tf32" else name
        toolkit.config.set_matmul_precision("tf32" if name == "tf32" else "strict")
        model = _cnn(policy)
        model.set_weights([w.astype("float32") for w in exact.get_weights()])
        with toolkit.device(GPU):
            found = _gradients(model, x, y)
        pairs = list(zip(found, expected, strict=True))[:2]
        worst = max(_error(a, e) for a, e in pairs), _distance(found[2:], expected[2:])
        errors[name] = {"results, gradients": worst, "limits": limits}
    toolkit.config.set_matmul_precision("strict")
    passed = (
        error <= limit
        for row in errors.values()
        for error, limit in zip(*row.values(), strict=True)
    )
    return errors, all(passed)


def _trained(captures, policy="float32"):
    """The weights after some steps."""
    device = get_backend("cupy").device
    device.captures = captures
    try:
        model = _cnn(policy)
        loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        with toolkit.device(GPU):
            model.fit(*_images(256), batch_size=32, epochs=2, verbose=0)
        return b"".join(w.tobytes() for w in model.get_weights())
    finally:
        device.captures = True


def capture(out):
    """Captured steps give the bits of those that are not; a seed gives its bits."""
    found = {}
    for policy in ("float32", "mixed_bfloat16", "mixed_float16"):
        first = _trained(True, policy)
        found[policy] = {
            "captured as eager": first == _trained(False, policy),
            "same seed, same bits": first == _trained(True, policy),
        }
    return found, all(all(row.values()) for row in found.values())


def nccl(out):
    """One rank of NCCL on this GPU: gathers, sums, a captured graph, an abort."""
    import gpu_nccl

    device = get_backend("cupy").device

    def finished():
        event = device.event()
        event.record(device.stream)
        return lambda: event.done

    found = gpu_nccl.check(
        device, device.stream.ptr, device.device.pci_bus_id, finished
    )
    return found, all(found.values())


def speed(out, seconds):
    """Seconds of a step of training beside torch and JAX, where these are installed."""
    import gpu_speed

    def save(rows):
        (out / "speed.txt").write_text(gpu_speed.table(rows), encoding="utf-8")
        write(out / "speed.json", rows)

    record = gpu_speed.measure(seconds - 5, save)
    return record, not any("failed" in row for row in record)


def write(path, found):
    """Results as JSON."""
    path.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")


def main(name, folder, seconds="inf"):
    """Run a stage and write its results."""
    out = Path(folder)
    stage = {f.__name__: f for f in (facts, accuracy, capture, nccl, speed)}[name]
    found, passed = stage(out, float(seconds)) if stage is speed else stage(out)
    write(out / f"{name}.json", found)
    print(json.dumps(found, default=str))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
