"""Record of an operation in the table of operations.py, and its random arguments.

Sizes have an index: 0 for about 32 elements, 1 for about 1e5, 2 for about 1e7.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

SIZES = (0, 1, 2)
# Shapes for each size index.
MATRIX = ((4, 8), (250, 400), (2500, 4000))
VECTOR = (32, 100_000, 10_000_000)
SQUARE = ((4, 4), (316, 316), (3162, 3162))
PRODUCT = (8, 256, 1024)
IMAGES = ((1, 6, 5, 8), (4, 28, 28, 32), (16, 56, 56, 64))
PHOTOS = ((1, 8, 8, 3), (4, 96, 96, 3), (32, 224, 224, 3))
SEQUENCES = ((1, 16, 8), (8, 128, 96), (32, 512, 128))
VOLUMES = ((1, 4, 4, 4, 8), (2, 12, 12, 12, 24), (4, 24, 24, 24, 48))
HEADS = ((1, 8, 1, 8), (2, 128, 4, 64), (4, 512, 8, 64))
MATRICES = ((2, 4, 4), (64, 32, 32), (16, 256, 256))
CLASSES = (5, 100, 1000)
SIGNALS = ((2, 16), (100, 1024), (2500, 4096))

RANDOM = np.random.default_rng(0)
INITIAL_STATE = RANDOM.bit_generator.state

Arrays = tuple[Any, ...]


@dataclass(frozen=True)
class Operation:
    """Operation of the table.

    Attributes:
        name: its name in `toolkit.ops`; "image.NAME" and "random.NAME" for functions of
            these modules.
        case: the variant, such as "axis 1".
        arrays: a function from a size index to its arguments.
        ours: a function of the module toolkit and tensors.
        torch: a function of the module torch and tensors, or None.
        numpy: a function of the module numpy and arrays, or None.
        is_differentiable: whether its gradient is measured.
        is_checked: whether the results must be equal.
        is_static: whether its shapes are known, so that a function can be compiled.
        layout: "channels" if the first argument has channels last, and the kernels of
            convolutions follow; "depthwise" for kernels of depthwise convolutions.
        sizes: the size indices.
        dtype: a dtype to cast the arguments to, if NumPy does not have it.
    """

    name: str
    case: str
    arrays: Callable[[int], Arrays]
    ours: Callable[..., Any]
    torch: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    is_differentiable: bool = True
    is_checked: bool = True
    is_static: bool = True
    layout: str = ""
    sizes: tuple[int, ...] = SIZES
    dtype: str = ""

    @property
    def title(self) -> str:
        """Return its name and case."""
        return f"{self.name}, {self.case}" if self.case else self.name


def reset() -> None:
    """Restart the random numbers."""
    RANDOM.bit_generator.state = INITIAL_STATE


def normal(*shape):
    """Return normal numbers."""
    return RANDOM.standard_normal(shape, dtype="float32")


def positive(*shape):
    """Return numbers in [0.5, 1.5)."""
    return RANDOM.random(shape, dtype="float32") + np.float32(0.5)


def uniform(low, high, *shape):
    """Return numbers in [low, high)."""
    return RANDOM.uniform(low, high, shape).astype("float32")


def integers(limit, *shape, dtype="int32"):
    """Return integers in [0, limit)."""
    return RANDOM.integers(0, limit, shape).astype(dtype)


def booleans(*shape):
    """Return booleans."""
    return RANDOM.random(shape) < 0.5


def with_nan(*shape):
    """Return normal numbers, and NaN for one in eight."""
    return np.where(integers(8, *shape) == 0, np.float32(np.nan), normal(*shape))


def invertible(*shape):
    """Return matrices whose diagonal is large."""
    return normal(*shape) + 20 * np.eye(shape[-1], dtype="float32")


def definite(*shape):
    """Return positive definite matrices."""
    x = normal(*shape)
    return x @ x.swapaxes(-1, -2) + 20 * np.eye(shape[-1], dtype="float32")


def matrix(size):
    """Return a matrix of normal numbers."""
    return (normal(*MATRIX[size]),)


def positive_matrix(size):
    """Return a matrix of positive numbers."""
    return (positive(*MATRIX[size]),)


def pair(size):
    """Return two matrices, the second of positive numbers."""
    return normal(*MATRIX[size]), positive(*MATRIX[size])


def vector(size):
    """Return a vector."""
    return (normal(VECTOR[size]),)


def images(size):
    """Return images with channels last."""
    return (normal(*IMAGES[size]),)


def photos(size):
    """Return images with three channels, in [0, 1)."""
    return (uniform(0, 1, *PHOTOS[size]),)


def nothing(size):
    """Return no argument."""
    return ()


@cache
def find(module, name):
    """Return a function of torch or NumPy, also from their modules of functions.

    It is cached: a call must not contain the search, which takes longer in a module
    with a `__getattr__`.
    """
    spaces = [module, getattr(module, "special", None)]
    spaces.append(getattr(getattr(module, "nn", None), "functional", None))
    for space in spaces:
        if hasattr(space, name):
            return getattr(space, name)
    raise AttributeError(f"{module.__name__} has no function {name}")


def named(names, arrays, torch="", numpy="", **options):
    """Return one operation for each name, with the same name in the peers.

    torch and numpy are the different names, as "ours=theirs"; "ours=" for no peer, and
    "-" alone if the peer has none of them.
    """
    return [
        Operation(
            name,
            options.get("case", ""),
            arrays,
            lambda tk, *xs, name=name: getattr(tk.ops, name)(*xs),
            _peer(name, torch),
            _peer(name, numpy),
            **{key: value for key, value in options.items() if key != "case"},
        )
        for name in names.split()
    ]


def _peer(name, renamed):
    """Return the function of a peer, or None."""
    if renamed == "-":
        return None
    theirs = dict(item.split("=") for item in renamed.split()).get(name, name)
    return (lambda module, *xs: find(module, theirs)(*xs)) if theirs else None


def along(names, axes, arrays, torch="", numpy="", title="", **options):
    """Return the operations along each axis; None is the whole array."""
    rows = []
    for name in names.split():
        for axis in axes:
            keywords = {} if axis is None else {"axis": axis}
            ours = _bound(name, "", keywords)
            dims = {} if axis is None else {"dim": axis}
            rows.append(
                Operation(
                    name,
                    title or ("whole" if axis is None else f"axis {axis}"),
                    arrays,
                    lambda tk, *xs, ours=ours: ours(tk.ops, *xs),
                    _bound(name, torch, dims),
                    _bound(name, numpy, keywords),
                    **options,
                )
            )
    return rows


def _bound(name, renamed, keywords):
    """Return a function of a module with these keywords, or None."""
    if renamed == "-":
        return None
    theirs = dict(item.split("=") for item in renamed.split()).get(name, name)

    def call(module, *xs):
        result = find(module, theirs)(*xs, **keywords)
        return result[0] if isinstance(result, tuple) else result

    return call if theirs else None
