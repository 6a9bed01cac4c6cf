"""Operations compared with torch, JAX and NumPy: eager, compiled, and gradients.

    PEERS/bin/python benchmarks/cpu/operations.py --json operations.json
    PEERS/bin/python benchmarks/cpu/operations.py --only argmax --sizes 2
    PEERS/bin/python benchmarks/cpu/operations.py --page operations.json \
        --write docs/operation_benchmarks.md

Every row of operations_table.py runs with about 32, 1e5 and 1e7 elements, in one
process with one thread. Candidates alternate, and the clock is the CPU time of the
process. So other work on the machine has a small effect. Results and gradients are
compared with the peer. Torch and JAX are peers if the interpreter has them. JAX runs
the functions of the NumPy column, compiled.
"""

import argparse
import json
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import operations_page
from harness import save, time_alternately

from toolkit.bench.processes import thread_environment

# Seconds of a sample, by size: short calls are repeated.
SECONDS = (0.006, 0.006, 0.02)
ROUNDS = 5
# Calls of a candidate before the clock starts, and the seconds after which they end.
# An eager operation of toolkit gets other kernels after 128 calls, and a program after
# kernels of 10 ms.
WARM_CALLS, WARM_SECONDS = 1500, 0.5
# Above these seconds of a call fewer rounds suffice.
LONG, LONG_ROUNDS = 0.3, 3
# Bytes of the largest block that the C library keeps after its release.
ALLOCATED = 31 << 20
# A candidate with longer calls is left out of the next size, with calls of seconds.
SLOW = 0.01
# One thread for XLA.
XLA = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
# Largest number of elements that are compared.
COMPARED = 200_000
PERMUTATIONS = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
KERNELS = {3: (2, 1, 0), 4: (3, 2, 0, 1), 5: (4, 3, 0, 1, 2)}
DEPTHWISE = {3: (1, 2, 0), 4: (2, 3, 0, 1)}


def main():
    """Measure all rows, or write the page of a record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="rows with this in their title")
    options.add_argument("--group", default="", help="rows of this group")
    options.add_argument("--sizes", default="0,1,2", help="indices of the sizes")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--forward", action="store_true", help="no gradients")
    options.add_argument("--json", metavar="PATH", help="where to keep every sample")
    options.add_argument("--page", metavar="JSON", help="a record to write a page of")
    options.add_argument("--write", metavar="PATH", type=Path, help="the page")
    options.add_argument("--note", default="", help="the date, what else ran")
    options = options.parse_args()
    if options.page:
        record = json.loads(Path(options.page).read_text("utf-8"))
        options.write.write_text(operations_page.render(record, options.note), "utf-8")
        return
    settings = thread_environment(1) | XLA
    if not os.environ.items() >= settings.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | settings)
    measure(options)


def measure(options):
    """Measure the selected rows, and print and save them."""
    warnings.simplefilter("ignore")
    from operations_table import GROUPS

    keep_freed_memory()

    rows = []
    for group, operations in GROUPS.items():
        for operation in operations:
            if options.only not in operation.title or options.group not in group:
                continue
            for is_gradient in (False, True):
                if is_gradient and (options.forward or not operation.is_differentiable):
                    continue
                for row in measure_sizes(operation, is_gradient, options):
                    rows.append({"group": group, **row})
                    print(operations_page.line(row), flush=True)
    peers = operations_page.PEERS
    save(options.json, rows, threads=1, peers=peers, packages=versions())


def keep_freed_memory():
    """Make the C library keep freed memory, as it does in a program with large arrays.

    Otherwise each call with 1e5 elements can return its results to the system. The page
    faults of the next call then take longer than the operation.
    """
    import numpy

    numpy.ones(ALLOCATED, "uint8")


def measure_sizes(operation, is_gradient, options):
    """Yield the rows of an operation, one for each size."""
    names = list(CANDIDATES)
    for size in map(int, options.sizes.split(",")):
        if names and size in operation.sizes:
            row = measure_row(operation, size, is_gradient, options.rounds, names)
            yield row
            names = [n for n in names if row["median"].get(n, 0.0) <= SLOW]


def versions():
    """Return the versions of the libraries."""
    found = {}
    for name in ("toolkit", "numpy", "torch", "jax"):
        module = sys.modules.get(name)
        if module is not None:
            found[name] = module.__version__
    return found


def measure_row(operation, size, is_gradient, rounds, names):
    """Return the samples of the named candidates, and their differences."""
    row = {"case": operation.title, "size": size, "gradient": is_gradient}
    calls, errors = {}, {}
    for name in names:
        try:
            call = CANDIDATES[name](operation, size, is_gradient)
            if call is not None:
                calls[name] = call, as_arrays(call(), name, operation)
        except Exception as error:  # of a peer, or a refused dtype
            if name != "jax":  # it has only some of the functions of NumPy
                errors[name] = f"{type(error).__name__}: {error}"[:200]
    if operation.is_checked:
        errors |= differences({name: result for name, (_, result) in calls.items()})
    for call, _ in calls.values():
        warm_up(call)
    samples = time_alternately(
        {name: call for name, (call, _) in calls.items()},
        SECONDS[size],
        lambda seconds: min(rounds, LONG_ROUNDS) if seconds > LONG else rounds,
    )
    medians = {name: median(values) for name, values in samples.items()}
    return {**row, "median": medians, "samples": samples, "errors": errors}


def warm_up(call):
    """Call a function until its calls have the same duration."""
    end = time.process_time() + WARM_SECONDS
    for _ in range(WARM_CALLS):
        call()
        if time.process_time() > end:
            return


def arguments(operation, size):
    """Return the same random arguments for each candidate."""
    from operations_inputs import reset

    reset()
    return operation.arrays(size)


def with_toolkit(operation, size, is_gradient, compiled=False):
    """Return a function that calls the operation of toolkit."""
    import toolkit

    if compiled and not operation.is_static:
        return None
    arrays = arguments(operation, size)
    tensors = [toolkit.ops.convert_to_tensor(x) for x in arrays]
    if operation.dtype:
        tensors = [toolkit.ops.cast(x, operation.dtype) for x in tensors]

    def forward(*xs):
        return operation.ours(toolkit, *xs)

    def gradient(g, *xs):
        floats = [x for x in xs if "float" in x.dtype]
        with toolkit.GradientTape() as tape:
            tape.watch(floats)
            y = forward(*xs)
        return tape.gradient(y, floats, output_gradients=g)

    function = gradient if is_gradient else forward
    if is_gradient:
        tensors.insert(0, ones_like(forward(*tensors), toolkit.ops.ones_like))
    if compiled:
        function = toolkit.function(function)
    return partial(function, *tensors)


def ones_like(value, make):
    """Return ones of the shapes of a result."""
    if isinstance(value, (tuple, list)):
        return [make(x) for x in value]
    return make(value)


def with_torch(operation, size, is_gradient):
    """Return a function that calls torch."""
    try:
        import torch
    except ImportError:
        return None
    if operation.torch is None:
        return None
    torch.set_num_threads(1)
    tensors = [
        arranged(torch, torch.from_numpy(x), operation.layout, number)
        for number, x in enumerate(arguments(operation, size))
    ]
    if operation.dtype:
        tensors = [x.to(getattr(torch, operation.dtype)) for x in tensors]

    def forward():
        with torch.inference_mode():
            return operation.torch(torch, *tensors)

    if not is_gradient:
        return forward
    floats = [x.requires_grad_() for x in tensors if x.is_floating_point()]
    with torch.no_grad():
        ones = ones_like(operation.torch(torch, *tensors), torch.ones_like)

    def gradient():
        y = operation.torch(torch, *tensors)
        return torch.autograd.grad(y, floats, ones, allow_unused=True)

    return gradient


def permutation(layout, number, ndim):
    """Return the permutation of an argument to the layout of torch, or None."""
    if not layout or ndim < 3:
        return None
    if number == 0:
        return PERMUTATIONS[ndim]
    return (DEPTHWISE if layout == "depthwise" and number == 1 else KERNELS)[ndim]


def arranged(torch, x, layout, number):
    """Return an argument in the layout of torch, where channels last is faster."""
    axes = permutation(layout, number, x.ndim)
    if axes is None:
        return x
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(x.ndim, torch.contiguous_format)
    return x.permute(axes).contiguous(memory_format=wanted)


def with_numpy(operation, size, is_gradient):
    """Return a function that calls NumPy."""
    import numpy

    if is_gradient or operation.numpy is None or operation.dtype:
        return None
    return partial(operation.numpy, numpy, *arguments(operation, size))


def with_jax(operation, size, is_gradient):
    """Return a function that calls the function of NumPy in JAX, compiled."""
    try:
        import jax
    except ImportError:
        return None
    if operation.numpy is None or operation.dtype:
        return None
    jax.config.update("jax_enable_x64", True)
    arrays = [jax.numpy.asarray(x) for x in arguments(operation, size)]
    if not arrays and not operation.is_checked:
        return None  # the generator of NumPy draws once, when JAX traces the function
    indices = [i for i, x in enumerate(arrays) if x.dtype.kind == "f"]

    def forward(*xs):
        return operation.numpy(jax.numpy, *xs)

    def gradient(g, *xs):
        def of_floats(*floats):
            inputs = dict(enumerate(xs)) | dict(zip(indices, floats, strict=True))
            return forward(*inputs.values())

        return jax.vjp(of_floats, *(xs[i] for i in indices))[1](g)

    if is_gradient:
        ones = ones_like(jax.eval_shape(forward, *arrays), jax.numpy.ones_like)
        arrays.insert(0, tuple(ones) if isinstance(ones, list) else ones)
    compiled = jax.jit(gradient if is_gradient else forward)
    return lambda: jax.block_until_ready(compiled(*arrays))


def as_arrays(result, name, operation):
    """Return the results in the layout of toolkit, or a part of their elements."""
    import numpy as np

    results = result if isinstance(result, (tuple, list)) else [result]
    arrays = []
    for number, x in enumerate(results):
        if x is None:
            continue
        if hasattr(x, "detach"):
            x = x.detach()
            axes = permutation(operation.layout, number, x.ndim)
            if axes is not None:
                x = x.permute(tuple(np.argsort(axes).tolist()))
            x = x.float() if "bfloat16" in str(x.dtype) else x.resolve_conj()
        x = np.asarray(x).reshape(-1)
        step = max(x.size // COMPARED, 1)
        arrays.append(np.array(x[::step]))
    return arrays


def differences(results):
    """Return a message for each candidate of toolkit that differs from a peer."""
    import numpy as np

    peers = [results[name] for name in operations_page.PEERS if name in results]
    messages = {}
    for name in operations_page.OURS:
        if name not in results or not peers:
            continue
        for x, y in zip(results[name], peers[0], strict=True):
            with np.errstate(all="ignore"):
                finite = np.abs(y[np.isfinite(y)]) if y.dtype.kind in "fc" else [1]
            # The sum of a softmax is constant: its gradient is rounding errors.
            scale = max(float(np.max(finite)) if len(finite) else 1.0, 1e-2)
            try:
                np.testing.assert_allclose(x, y, 2e-3, 2e-4 * scale)
            except AssertionError as error:
                words = " ".join(str(error).split())
                messages[f"{name}, check"] = words[:160]
    return messages


CANDIDATES = {
    "eager": with_toolkit,
    "compiled": partial(with_toolkit, compiled=True),
    "torch": with_torch,
    "jax": with_jax,
    "numpy": with_numpy,
}

if __name__ == "__main__":
    main()
