"""Single operations on large arrays: compiled and eager, compared with torch.

    python benchmarks/cpu/operations.py --peer-python ../peers/bin/python --threads 2
    python benchmarks/cpu/operations.py --only resize

Slow cases need attention: an operation that falls back to NumPy's kernels, or a loop
without vector instructions, is several times slower than torch's. A case with
"gradient" also computes the gradient of the sum of its cubes. torch's results are
compared with toolkit's results, except for random numbers.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import numpy as np
from harness import Candidate, main

RANDOM = np.random.default_rng(0)
INITIAL_STATE = RANDOM.bit_generator.state


def normal(*shape):
    """Return normal numbers."""
    return RANDOM.standard_normal(shape, dtype="float32")


def positive(*shape):
    """Return numbers in [0.5, 1.5)."""
    return RANDOM.random(shape, dtype="float32") + np.float32(0.5)


def random_below(limit, *shape):
    """Return integers in [0, limit)."""
    return RANDOM.integers(0, limit, shape)


@dataclass(frozen=True)
class Operation:
    """Operation and its arguments.

    arrays: a function that returns its arguments. ours: a function of the module
    toolkit and tensors. theirs: a function of the module torch, its functional module,
    and tensors.
    """

    arrays: Callable[[], tuple[Any, ...]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]


def square():
    """Return a million numbers."""
    return (normal(1024, 1024),)


def pair():
    """Return two arrays of a million numbers."""
    return normal(1024, 1024), positive(1024, 1024)


def elementwise(name, theirs="", arrays=square):
    """Return a function with its name in toolkit, and its name in torch."""

    def ours(tk, *xs):
        return getattr(tk.ops, name)(*xs)

    def other(torch, F, *xs):
        function = getattr(torch, theirs or name, None) or getattr(F, theirs or name)
        return function(*xs)

    return Operation(arrays, ours, other)


def along_axis(name, axis, theirs="", arrays=square):
    """Return a function along an axis."""

    def ours(tk, x):
        return getattr(tk.ops, name)(x, axis=axis)

    def other(torch, F, x):
        return getattr(torch, theirs or name)(x, axis)

    return Operation(arrays, ours, other)


def images(arrays, ours, theirs):
    """Return a function of images, channels last in toolkit and in torch's memory."""

    def other(torch, F, x, *weights):
        x = x.permute(0, 3, 1, 2)
        kernels = [w.permute(3, 2, 0, 1).contiguous() for w in weights]
        return theirs(torch, F, x, *kernels).permute(0, 2, 3, 1)

    return Operation(arrays, ours, other)


def convolution(size, channels, inputs=0, extent=28, **options):
    """Return a convolution of 16 images, on some or all of the channels."""
    groups = channels // (inputs or channels)
    padding = size // 2

    def ours(tk, x, w):
        x = tk.ops.pad(x, ((0, 0), (padding,) * 2, (padding,) * 2, (0, 0)))
        return tk.ops.conv(x, w, options.get("stride", 1), "valid")

    def theirs(torch, F, x, w):
        return F.conv2d(x, w, padding=padding, groups=groups, **options)

    def arrays():
        weights = normal(size, size, channels // groups, channels) / 10
        return normal(16, extent, extent, channels), weights

    return images(arrays, ours, theirs)


def resizing(extent, method):
    """Return 16 images of 64 x 64, resized."""
    options = {} if method == "nearest" else {"align_corners": False}

    def ours(tk, x):
        return tk.ops.image.resize(x, (extent, extent), method)

    def theirs(torch, F, x):
        return F.interpolate(x, (extent, extent), mode=method, **options)

    return images(lambda: (normal(16, 64, 64, 32),), ours, theirs)


OPERATIONS = {
    **{
        name: elementwise(name)
        for name in "exp sin tan arctan sinh erf sigmoid tanh relu silu".split()
    },
    "gelu": Operation(
        square,
        lambda tk, x: tk.ops.gelu(x, approximate=False),
        lambda torch, F, x: F.gelu(x),
    ),
    **{name: elementwise(name, arrays=pair) for name in ("add", "floor_divide")},
    "power": elementwise("power", "pow", lambda: pair()[::-1]),
    "mod": elementwise("mod", "remainder", pair),
    "arctan2": elementwise("arctan2", arrays=pair),
    "where": Operation(
        pair,
        lambda tk, x, y: tk.ops.where(x > 0, x, y),
        lambda torch, F, x, y: torch.where(x > 0, x, y),
    ),
    **{f"sum, axis {axis}": along_axis("sum", axis) for axis in (0, 1)},
    "sum, middle axis": along_axis("sum", 1, arrays=lambda: (normal(64, 256, 64),)),
    **{f"max, axis {axis}": along_axis("max", axis, "amax") for axis in (0, 1)},
    **{f"argmax, axis {axis}": along_axis("argmax", axis) for axis in (0, 1)},
    **{f"softmax, axis {axis}": along_axis("softmax", axis) for axis in (0, 1)},
    "logsumexp": along_axis("logsumexp", 1),
    **{f"cumsum, axis {axis}": along_axis("cumsum", axis) for axis in (0, 1)},
    "cumprod": Operation(
        lambda: (positive(256, 256),),
        lambda tk, x: tk.ops.cumprod(x, 1),
        lambda torch, F, x: torch.cumprod(x, 1),
    ),
    "sort": Operation(
        square,
        lambda tk, x: tk.ops.sort(x, 1),
        lambda torch, F, x: torch.sort(x, 1)[0],
    ),
    "top_k": Operation(
        square,
        lambda tk, x: tk.ops.top_k(x, 5)[0],
        lambda torch, F, x: torch.topk(x, 5)[0],
    ),
    "searchsorted": Operation(
        lambda: (np.sort(normal(10_000)), normal(100_000)),
        lambda tk, x, y: tk.ops.searchsorted(x, y),
        lambda torch, F, x, y: torch.searchsorted(x, y),
    ),
    "take rows": Operation(
        lambda: (normal(10_000, 128), random_below(10_000, 4096)),
        lambda tk, x, i: tk.ops.take(x, i, axis=0),
        lambda torch, F, x, i: torch.index_select(x, 0, i),
    ),
    "take columns": Operation(
        lambda: (normal(1024, 1024), random_below(1024, 512)),
        lambda tk, x, i: tk.ops.take(x, i, axis=1),
        lambda torch, F, x, i: torch.index_select(x, 1, i),
    ),
    "take_along_axis": Operation(
        lambda: (normal(1024, 1024), random_below(1024, 1024, 256)),
        lambda tk, x, i: tk.ops.take_along_axis(x, i, axis=1),
        lambda torch, F, x, i: torch.gather(x, 1, i),
    ),
    "segment_sum": Operation(
        lambda: (normal(8192, 128), np.sort(random_below(500, 8192))),
        lambda tk, x, i: tk.ops.segment_sum(x, i, 500),
        lambda torch, F, x, i: torch.zeros(500, 128).index_add(0, i, x),
    ),
    "transpose": Operation(
        square,
        lambda tk, x: tk.ops.copy(tk.ops.transpose(x)),
        lambda torch, F, x: x.t().contiguous(),
    ),
    "channels first": Operation(
        lambda: (normal(16, 56, 56, 64),),
        lambda tk, x: tk.ops.copy(tk.ops.transpose(x, (0, 3, 1, 2))),
        lambda torch, F, x: x.permute(0, 3, 1, 2).contiguous(),
    ),
    "flip": Operation(
        square,
        lambda tk, x: tk.ops.flip(x, 1),
        lambda torch, F, x: torch.flip(x, (1,)),
    ),
    "roll": Operation(
        square,
        lambda tk, x: tk.ops.roll(x, 100, 1),
        lambda torch, F, x: torch.roll(x, 100, 1),
    ),
    **{
        f"stack, axis {axis}": Operation(
            pair,
            lambda tk, x, y, axis=axis: tk.ops.stack([x, y], axis),
            lambda torch, F, x, y, axis=axis: torch.stack([x, y], axis),
        )
        for axis in (0, -1)
    },
    "matmul": Operation(
        lambda: (normal(512, 512), normal(512, 512)),
        lambda tk, x, y: tk.ops.matmul(x, y),
        lambda torch, F, x, y: x @ y,
    ),
    "matmul of a row": Operation(
        lambda: (normal(1, 2048), normal(2048, 2048)),
        lambda tk, x, y: tk.ops.matmul(x, y),
        lambda torch, F, x, y: x @ y,
    ),
    "matmul of int32": Operation(
        lambda: tuple(random_below(10, 256, 256).astype("int32") for _ in range(2)),
        lambda tk, x, y: tk.ops.matmul(x, y),
        lambda torch, F, x, y: x @ y,
    ),
    "conv 3x3": convolution(3, 64),
    "conv 5x5": convolution(5, 64),
    "conv 3x3, stride 2": convolution(3, 64, stride=2),
    "conv 3x3, 4 groups": convolution(3, 128, 32),
    "depthwise 3x3": convolution(3, 128, 1, 56),
    "max_pool": images(
        lambda: (normal(16, 112, 112, 64),),
        lambda tk, x: tk.ops.max_pool(x, 2),
        lambda torch, F, x: F.max_pool2d(x, 2),
    ),
    "resize to 128, bilinear": resizing(128, "bilinear"),
    "resize to 100, bilinear": resizing(100, "bilinear"),
    "resize to 128, nearest": resizing(128, "nearest"),
    "layer_normalization": Operation(
        lambda: (normal(4096, 512),),
        lambda tk, x: tk.ops.layer_normalization(x, epsilon=1e-5),
        lambda torch, F, x: F.layer_norm(x, (512,)),
    ),
    "attention": Operation(
        lambda: tuple(normal(8, 256, 8, 64) for _ in range(3)),
        lambda tk, *qkv: tk.ops.dot_product_attention(*qkv),
        lambda torch, F, *qkv: F.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in qkv)
        ).transpose(1, 2),
    ),
    "rfft": Operation(
        lambda: (normal(256, 1024),),
        lambda tk, x: tk.ops.rfft(x)[0],
        lambda torch, F, x: torch.fft.rfft(x).real,
    ),
    "solve": Operation(
        lambda: (
            normal(32, 64, 64) + 20 * np.eye(64, dtype="float32"),
            normal(32, 64, 8),
        ),
        lambda tk, x, y: tk.ops.solve(x, y),
        lambda torch, F, x, y: torch.linalg.solve(x, y),
    ),
    "uniform": Operation(
        tuple,
        lambda tk: tk.random.uniform((1024, 1024)),
        lambda torch, F: torch.rand(1024, 1024),
    ),
    "normal": Operation(
        tuple,
        lambda tk: tk.random.normal((1024, 1024)),
        lambda torch, F: torch.randn(1024, 1024),
    ),
}
RANDOM_CASES = ("uniform", "normal")
# Operations without a gradient.
FLAT = {
    *RANDOM_CASES,
    "argmax, axis 0",
    "argmax, axis 1",
    "searchsorted",
    "matmul of int32",
}
FLAT |= {"floor_divide"}
GRADIENT = " gradient"
CASES = tuple(
    case
    for name in OPERATIONS
    for case in ([name] if name in FLAT else [name, name + GRADIENT])
)


def parse(case):
    """Return the operation, its fixed arrays, and whether it is a gradient."""
    operation = OPERATIONS[case.removesuffix(GRADIENT)]
    RANDOM.bit_generator.state = INITIAL_STATE
    return operation, operation.arrays(), case.endswith(GRADIENT)


def function_of(case):
    """Return a function of tensors, and the tensors."""
    import toolkit

    operation, arrays, is_gradient = parse(case)
    tensors = [toolkit.ops.convert_to_tensor(x) for x in arrays]

    def forward(*xs):
        return operation.ours(toolkit, *xs)

    def gradient(*xs):
        floats = [x for x in xs if "float" in x.dtype]
        with toolkit.GradientTape() as tape:
            tape.watch(floats)
            y = forward(*xs)
            result = toolkit.ops.sum(y * y * y)
        return tape.gradient(result, floats)

    return (gradient if is_gradient else forward), tensors


def with_toolkit(case):
    """Return the compiled operation."""
    import toolkit

    function, tensors = function_of(case)
    compiled = toolkit.function(function)
    return lambda: compiled(*tensors)


def run_eagerly(case):
    """Return the eager operation."""
    function, tensors = function_of(case)
    return lambda: function(*tensors)


def with_torch(case):
    """Return torch's eager operation."""
    import torch
    import torch.nn.functional as F

    operation, arrays, is_gradient = parse(case)
    tensors = [torch.from_numpy(x) for x in arrays]
    floats = [x for x in tensors if x.is_floating_point()]

    def forward():
        with torch.inference_mode():
            return operation.theirs(torch, F, *tensors)

    def gradient():
        y = operation.theirs(torch, F, *tensors)
        return torch.autograd.grad((y * y * y).sum(), floats)

    if is_gradient:
        for x in floats:
            x.requires_grad_()
    run = gradient if is_gradient else forward
    if case not in RANDOM_CASES:
        check(case, run())
    return run


def check(case, actual):
    """Raise an error unless both compute the same."""
    function, tensors = function_of(case)
    expected = function(*tensors)
    if not isinstance(actual, tuple):
        actual, expected = [actual], [expected]
    for x, y in zip(actual, expected, strict=True):
        y = np.asarray(y)
        scale = np.abs(y).max()
        np.testing.assert_allclose(x.numpy(), y, 1e-3, 1e-4 * scale)


CANDIDATES = (
    Candidate("toolkit", with_toolkit),
    Candidate("toolkit, eager", run_eagerly),
    Candidate("torch", with_torch, peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
