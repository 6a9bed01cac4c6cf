"""Overhead of one eager operation: toolkit, NumPy and torch.

    python benchmarks/cpu/eager_overhead.py --peer-python ../peers/bin/python

On small arrays the dispatch dominates the time, on larger ones the kernel. With "tape"
the operation is recorded for a gradient, which NumPy does not support.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

from harness import Candidate, main

OPS = ("add", "exp", "gelu", "matmul")
SIZES = (4, 256, 1024)
CONVOLUTIONS = ("conv 8x8", "conv 32x32")
CASES = [
    *(f"{op} {n}x{n}" for op in OPS for n in SIZES),
    *CONVOLUTIONS,
    *(f"{op} {n}x{n} tape" for op in OPS for n in SIZES[:2]),
]
RECORDED = 100  # operations on one tape
CHANNELS = 32


def parse(case):
    """Return (name of the op, its float32 arrays, whether a tape records).

    Convolutions are of 8 images with 3 x 3 filters, and 32 channels in and out.
    """
    import numpy as np

    op, size, *tape = case.split()
    extent = int(size.split("x")[0])
    shapes = [(extent, extent)] * (1 if op in ("exp", "gelu") else 2)
    if op == "conv":
        shapes = [(8, extent, extent, CHANNELS), (3, 3, CHANNELS, CHANNELS)]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, dtype="float32") for shape in shapes]
    return op, arrays, bool(tape)


def with_numpy(case):
    """Return NumPy's function on arrays."""
    import numpy as np

    op, arrays, tape = parse(case)
    function = getattr(np, op, None)
    if tape or function is None:
        return None
    return lambda: function(*arrays)


def with_toolkit(case):
    """Return the function of toolkit.ops on tensors."""
    import toolkit
    from toolkit import ops

    op, arrays, tape = parse(case)
    arguments = list(map(ops.convert_to_tensor, arrays))
    function = partial(ops.conv, padding="same") if op == "conv" else getattr(ops, op)
    if not tape:
        return lambda: function(*arguments)

    def recorded():
        with toolkit.GradientTape() as tape:
            tape.watch(arguments)
            for _ in range(RECORDED):
                function(*arguments)

    return recorded, RECORDED


def with_torch(case):
    """Return the function of torch on tensors on the CPU."""
    import torch

    op, arrays, tape = parse(case)
    arguments = [torch.from_numpy(x) for x in arrays]
    if op == "conv":
        x, w = arguments
        arguments = [x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)]
    arguments = [x.requires_grad_(tape) for x in arguments]
    function = {
        "conv": partial(torch.nn.functional.conv2d, padding="same"),
        "gelu": partial(torch.nn.functional.gelu, approximate="tanh"),
    }.get(op) or getattr(torch, op)
    return lambda: function(*arguments)


CANDIDATES = (
    Candidate("numpy", with_numpy),
    Candidate("toolkit", with_toolkit),
    Candidate("torch", with_torch, peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
