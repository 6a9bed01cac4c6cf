"""GPU behaviour at limits: autotuned, out of memory, and shared by two processes."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gpu_fits import GPU, trained
from gpu_rehearsal import size

import toolkit
from toolkit.errors import OutOfDeviceMemory

STAGES = Path(__file__).with_name("gpu_stages.py")
# Rows of a batch whose activations exceed any GPU's memory, and the units of its layer.
ROWS, UNITS = size((1 << 22, 1 << 16), (1 << 13, 1 << 15))


def digest(save, name="float32", tuned=""):
    """Save the hash of the weights after training, and the losses."""
    toolkit.config.set_autotune(bool(tuned))
    bits, losses = trained(name)
    return {"weights": bits, "losses": losses}, True


def _begin(folder, number, *arguments):
    """Start a training process; return it and its output file."""
    path = Path(folder) / f"{number}.json"
    command = [sys.executable, str(STAGES), "digest", str(path), *arguments]
    return subprocess.Popen(command), path


def _end(process, path):
    """Wait for a process, and return its output."""
    if process.wait():
        raise RuntimeError(f"a process that trains ended with {process.returncode}")
    return json.loads(path.read_text("utf-8"))


def autotune(save):
    """Check that autotuned plans are exact, and that the disk cache works."""
    _, plain = trained("float32")
    toolkit.config.set_autotune(True)
    bits, losses = trained("float32")
    with tempfile.TemporaryDirectory() as folder:
        other = _end(*_begin(folder, 0, "float32", "tuned"))
    error = float(np.abs(np.array(losses) / np.array(plain) - 1).max())
    results = {
        "losses as without": error <= 1e-3,
        "same bits in another process": bits == other["weights"],
        "error": error,
    }
    return results, all(v for v in results.values() if isinstance(v, bool))


def processes(save):
    """Check that two concurrent processes train with the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        running = [_begin(folder, number) for number in range(2)]
        digests = [_end(*one) for one in running]
    same = digests[0] == digests[1]
    return {"same bits": same, "losses": digests[0]["losses"]}, same


def memory(save):
    """Check that a batch without room raises an error and changes no state."""
    layers, rng = toolkit.layers, np.random.default_rng(0)
    model = toolkit.Sequential(
        [layers.Input((4,)), layers.Dense(UNITS, "tanh", name="wide"), layers.Dense(1)]
    )
    model.compile("adam", "mse")
    x, y = rng.random((ROWS, 4), "float32"), rng.random((ROWS, 1), "float32")
    results = {}
    with toolkit.device(GPU):
        model.fit(x[:64], y[:64], batch_size=16, verbose=0)
        before = [v.numpy() for v in model.variables]
        try:
            model.fit(x, y, batch_size=ROWS, verbose=0)
        except OutOfDeviceMemory as error:
            results["what is said"] = str(error)
        pairs = zip(before, model.variables, strict=True)
        results["unchanged"] = all(np.array_equal(a, v.numpy()) for a, v in pairs)
        save(results)
        losses = model.fit(x[:64], y[:64], batch_size=16, verbose=0).history["loss"]
    results["goes on"] = bool(np.isfinite(losses).all())
    named = "wide" in results.get("what is said", "")
    return results, named and results["unchanged"] and results["goes on"]
