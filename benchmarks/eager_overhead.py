"""What one operation costs when it runs at once: toolkit, NumPy and torch.

    python benchmarks/eager_overhead.py --peer-python ../peers/bin/python

On small arrays it is the way to the kernel that takes the time, on larger ones the
kernel. With "tape" the operation is recorded for a gradient, which NumPy cannot.
"""

from harness import Candidate, main

OPS = ("add", "exp", "matmul")
SIZES = (4, 256)
CASES = [f"{op} {n}x{n}{tape}" for tape in ("", " tape") for op in OPS for n in SIZES]
RECORDED = 100  # operations on one tape


def parse(case):
    """(name of the op, two float32 arrays, whether a tape records)."""
    import numpy as np

    op, size, *tape = case.split()
    extent = int(size.split("x")[0])
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, extent, extent)).astype("float32")
    return op, a, b, bool(tape)


def with_numpy(case):
    """NumPy's function on arrays."""
    import numpy as np

    op, a, b, tape = parse(case)
    function = getattr(np, op)
    if tape:
        return None
    return (lambda: function(a)) if op == "exp" else (lambda: function(a, b))


def with_toolkit(case):
    """The function of toolkit.ops on tensors."""
    import toolkit
    from toolkit import ops

    op, a, b, tape = parse(case)
    arguments = list(map(ops.convert_to_tensor, [a] if op == "exp" else [a, b]))
    function = getattr(ops, op)
    if not tape:
        return lambda: function(*arguments)

    def recorded():
        with toolkit.GradientTape() as tape:
            tape.watch(arguments)
            for _ in range(RECORDED):
                function(*arguments)

    return recorded, RECORDED


def with_torch(case):
    """The function of torch on tensors on the CPU."""
    import torch

    op, a, b, tape = parse(case)
    arguments = [
        torch.tensor(x, requires_grad=tape) for x in ([a] if op == "exp" else [a, b])
    ]
    function = getattr(torch, op)
    return lambda: function(*arguments)


CANDIDATES = (
    Candidate("numpy", with_numpy),
    Candidate("toolkit", with_toolkit),
    Candidate("torch", with_torch, peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
