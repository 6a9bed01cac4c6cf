"""Steps of gpu_session.py that are not tests: `gpu_stages.py NAME JSON ...`."""

import json
import sys
import traceback
from pathlib import Path
from time import perf_counter

sys.path.append(str(Path(__file__).resolve().parents[2]))

import gpu_calls
import gpu_fits
import gpu_limits
import gpu_ranks
import gpu_rehearsal
import numpy as np

import toolkit
from toolkit import ops
from toolkit.backends import get_backend
from toolkit.backends.cupy import cudnn
from toolkit.backends.cupy.availability import count_devices, cupy_module
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.errors import BackendUnavailable

GPU = gpu_fits.GPU


def facts(save):
    """Save the device, its libraries, and the properties that cuDNN plans need."""
    backend = get_backend("cupy")
    description = {**backend.describe(), "devices": toolkit.config.list_devices()}
    if gpu_rehearsal.is_on():
        return description, True
    try:
        with backend.device.scope():
            text = cudnn.properties(0)
    except BackendUnavailable as error:
        # All other parts work: convolutions run as products of gathered windows,
        # slowly.
        description["cudnn"] = f"MISSING: {error}"
    else:
        description["cudnn"] = cudnn.version()
        description["device_properties"] = text
    return description, isinstance(description["cudnn"], int)


# --- first checks ---------------------------------------------------------------------


def first(save):
    """Check the driver, a kernel, a product, a convolution and a captured step.

    All checks run, even after failures, and report their errors.
    """
    results = {}
    for check in (driver, kernel, product, convolution, captured):
        start = perf_counter()
        try:
            row = {"passed": True, "found": check()}
        except Exception as error:  # any error is a result
            message = f"{type(error).__name__}: {error}"
            row = {"passed": False, "error": message, "trace": traceback.format_exc()}
        results[check.__name__] = row | {"seconds": round(perf_counter() - start, 2)}
        save(results)
    return results, all(row["passed"] for row in results.values())


def driver():
    """Return the versions of the driver and of CuPy's runtime."""
    if gpu_rehearsal.is_on():
        return "a rehearsal"
    runtime = cupy_module().cuda.runtime
    count_devices(runtime)
    return {"driver": runtime.driverGetVersion(), "cupy": runtime.runtimeGetVersion()}


def bare_backend():
    """Return the backend, even without cuBLASLt, which kernels do not need."""
    try:
        return get_backend("cupy")
    except BackendUnavailable:
        from toolkit.backends.cupy.cuda_device import CudaDevice

        return CupyBackend(CudaDevice(0), cupy_module())


def compare_kernel(name, arrays, limit, dtype="float32", **attrs):
    """Return the error of a primitive's kernel against float64 on the CPU."""
    backend, exact = bare_backend(), get_backend("reference").kernels[name]
    inputs = [backend.memory.asarray(x, dtype) for x in arrays]
    back = [backend.memory.to_numpy(x).astype("float64") for x in inputs]
    outputs = backend.memory.to_numpy(backend.kernels[name](*inputs, **attrs)).astype(
        "float64"
    )
    expected = exact(*back, **attrs)
    error = float(np.abs(outputs - expected).max() / np.abs(expected).max())
    if not error <= limit:
        raise AssertionError(f"{name} {dtype}: error {error:.2e}, expected <= {limit}")
    return error


def kernel():
    """Check a generated kernel."""
    x = np.random.default_rng(0).random((300, 70), "float32")
    return compare_kernel("exp", [x], 1e-6)


def product():
    """Check products of float32 and of bfloat16."""
    rng = np.random.default_rng(0)
    pair = rng.random((96, 64), "float32"), rng.random((64, 48), "float32")
    return {
        "float32": compare_kernel("matmul", pair, 1e-6),
        "bfloat16": compare_kernel("matmul", pair, 1e-2, "bfloat16"),
    }


def convolution():
    """Check convolutions of float32 and of bfloat16."""
    rng = np.random.default_rng(0)
    pair = rng.random((2, 9, 9, 16), "float32"), rng.random((3, 3, 16, 24), "float32")
    attrs = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    attrs["groups"] = 1
    return {
        "float32": compare_kernel("conv", pair, 1e-5, **attrs),
        "bfloat16": compare_kernel("conv", pair, 1e-2, "bfloat16", **attrs),
    }


def captured():
    """Check a captured step, four times on the same arrays."""

    @toolkit.function
    def step(x, w):
        return ops.sum(ops.tanh(x @ w), axis=1)

    rng = np.random.default_rng(0)
    x, w = rng.random((32, 16), "float32"), rng.random((16, 8), "float32")
    with toolkit.device(GPU):
        x_there, w_there = map(ops.convert_to_tensor, (x, w))
        results = [step(x_there, w_there).numpy() for _ in range(4)]
    expected = np.tanh(x.astype("float64") @ w).sum(axis=1)
    errors = [float(np.abs(y / expected - 1).max()) for y in results]
    if max(errors) > 1e-5 or any((y != results[0]).any() for y in results):
        raise AssertionError(f"errors of the runs: {errors}")
    return max(errors)


def nccl(save):
    """Check one rank of NCCL on this GPU: gathers, sums, a captured graph, an abort."""
    import gpu_nccl

    device = get_backend("cupy").device

    def finished():
        event = device.event()
        event.record(device.stream)
        return lambda: event.done

    results = gpu_nccl.check(
        device, device.stream.ptr, device.device.pci_bus_id, finished
    )
    return results, all(results.values())


def read(save):
    """Run a step of each library, so that its files are in the page cache.

    A cold disk read would add seconds to the first measurement.
    """
    import gpu_speed

    some = ("toolkit", "torch", "jax")
    row = gpu_speed.measure("cifar_cnn", "float32", save=save, libraries=some)
    return row, "failed" not in row


def speed(save, case, precision, seconds):
    """Measure a training step, compared with the installed ones of torch and JAX."""
    import gpu_speed

    row = gpu_speed.measure(case, precision, float(seconds) - 5, save)
    return row, "failed" not in row


def compiled(save, seconds):
    """Measure all cases with torch.compile."""
    import gpu_speed

    return gpu_speed.compiled(save, float(seconds) - 5), True


def profile(save, case, precision, seconds):
    """Profile a training step of toolkit, torch and JAX."""
    import gpu_profile
    import gpu_speed

    end, some = float(seconds) - 5, ("toolkit", "torch", "jax")
    row = gpu_speed.measure(case, precision, end, save, some, "profile")
    for library in some:
        if isinstance(row.get(library), dict) and "profile" in row[library]:
            print(library, gpu_profile.table(row[library]["profile"]), flush=True)
    return row, "failed" not in row


STAGES = {
    stage.__name__: stage
    for stage in (
        *(facts, first, nccl, read, speed, compiled, profile),
        *(gpu_calls.calls, gpu_fits.accuracy, gpu_fits.fits),
        *(gpu_limits.autotune, gpu_limits.memory, gpu_limits.processes),
        *(gpu_ranks.ranks, gpu_ranks.rank_step),
        gpu_limits.digest,
    )
}


def main(name, path, *arguments):
    """Run a stage; write its results incrementally and at the end."""
    gpu_rehearsal.install()

    def save(results):
        aside = Path(f"{path}.aside")
        aside.write_text(json.dumps(results, indent=1, default=str), encoding="utf-8")
        aside.replace(path)

    record, passed = STAGES[name](save, *arguments)
    save(record)
    print(json.dumps(record, default=str))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
