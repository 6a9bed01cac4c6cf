"""Test cases of every kernel: one row per primitive, with arrays and attributes."""

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit import dtypes, ops  # noqa: F401  (declare primitives)
from toolkit.ir import PRIMITIVES, Kind
from toolkit.ir.scalars import arity

FLOATS = ("bfloat16", "float16", "float32", "float64")
INTEGERS = ("int8", "int32", "int64", "uint8", "uint32")

# Empty, 0-d, several axes, and more elements than one chunk of a kernel in steps.
SHAPES = ((), (0, 3), (7,), (2, 1, 5), (70, 301))
PAIRS = (
    ((), ()),
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((), (2, 3)),
    ((0, 3), (1, 3)),
    ((70, 301), (70, 301)),
    ((70, 301), (301,)),
)
FLOAT_UNARY = (
    "exp expm1 log log2 log1p sqrt rsqrt cbrt sin cos tan arcsin arccos arctan sinh "
    "cosh tanh arcsinh arccosh arctanh erf erfinv sigmoid"
).split()
ANY_UNARY = (
    "negative abs sign floor ceil round trunc isnan isinf isfinite stop_gradient "
    "logical_not"
).split()
FLOAT_BINARY = ["divide", "arctan2", "power"]
ANY_BINARY = (
    "add subtract multiply floor_divide remainder maximum minimum equal not_equal less "
    "less_equal logical_and logical_or logical_xor"
).split()
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
SHIFTS = ("left_shift", "right_shift")
_LISTED = {*FLOAT_UNARY, *ANY_UNARY, *FLOAT_BINARY, *ANY_BINARY, *BITWISE, *SHIFTS}
_LISTED |= {"bitwise_not", "gcd", "where", "cast", "quantize", "reinterpret"}
# A new operation needs no row: it is tested on floats.
for _name, _record in PRIMITIVES.items():
    if _record.kind is Kind.ELEMENTWISE and _name not in _LISTED:
        (FLOAT_UNARY, FLOAT_BINARY)[arity(_record.scalar) - 1].append(_name)


@dataclass
class Case:
    """One call of a kernel.

    terms: the number of terms that an element of the result sums, perhaps in another
        order than the reference.
    """

    name: str
    arrays: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    terms: int = 1

    def __str__(self):
        shapes = "x".join(str(list(a.shape)).replace(" ", "") for a in self.arrays)
        dtype = dtypes.name_of(self.arrays[-1].dtype) if self.arrays else ""
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items()).replace(" ", "")
        return f"{self.name}-{dtype}-{shapes}-{attrs}"


def sample(shape, dtype, low=-3.0, high=3.0, seed=""):
    """Return a reproducible array of a dtype with values in a range."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, dtype, low, seed)).encode()))
    if dtype == "bool":
        return rng.random(shape) > 0.5
    if dtypes.is_integer(dtype):
        first = 0 if dtype.startswith("u") else int(low)
        return np.asarray(rng.integers(first, int(high) + 1, shape)).astype(dtype)
    values = np.asarray(rng.uniform(low, high, shape))
    return values.astype(dtypes.numpy_dtype(dtype))


def domain(name):
    """Return the range in which a function is tested, inside its domain."""
    low, high = PRIMITIVES[name].domain
    return max(low + 0.1, -3.0), min(high - 0.01, 4.0 if low > -3 else 3.0)


def specials(dtype):
    """Return values that are difficult for functions of floats."""
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 90.0, -90.0]
    return np.array([*values, 1e-4, -1e-4]).astype(dtypes.numpy_dtype(dtype))


def unary():
    for dtype in FLOATS:
        for name in (*FLOAT_UNARY, *ANY_UNARY):
            low, high = domain(name)
            for shape in SHAPES:
                yield Case(name, (sample(shape, dtype, low, high),))
            yield Case(name, (specials(dtype),))
    for dtype in INTEGERS:
        for name in (*ANY_UNARY, "bitwise_not"):
            for shape in SHAPES[:4]:
                yield Case(name, (sample(shape, dtype),))
    for name in ("logical_not", "bitwise_not", "stop_gradient"):
        yield Case(name, (sample((5,), "bool"),))


def binary():
    for dtype in FLOATS:
        x, y = np.meshgrid(specials(dtype), specials(dtype))
        for name in (*FLOAT_BINARY, *ANY_BINARY):
            low = 0.5 if name == "power" else -3.0
            for a, b in PAIRS:
                yield Case(
                    name, (sample(a, dtype, low), sample(b, dtype, low, seed="b"))
                )
            yield Case(name, (np.ascontiguousarray(x), np.ascontiguousarray(y)))
    for dtype in INTEGERS:
        for name in (*ANY_BINARY, *BITWISE):
            for a, b in PAIRS[:6]:
                yield Case(name, (sample(a, dtype), sample(b, dtype, seed="b")))
        for name in (*SHIFTS, "gcd", "power"):
            yield Case(name, (sample((5, 4), dtype), sample((4,), dtype, 0, 3)))
    for name in (*BITWISE, "logical_and", "logical_or", "logical_xor", "equal"):
        yield Case(name, (sample((3, 4), "bool"), sample((4,), "bool", seed="b")))


def where():
    shapes = (
        ((), (), ()),
        ((3, 4), (3, 4), (3, 4)),
        ((3, 1), (4,), ()),
        ((0, 3), (1, 3), ()),
        ((70, 301), (70, 301), ()),
        ((70, 1), (301,), (70, 301)),
        ((70, 301), (70, 301), (70, 301)),
    )
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        for c, a, b in shapes:
            arrays = (sample(a, dtype), sample(b, dtype, seed="b"))
            yield Case("where", (sample(c, "bool", seed="c"), *arrays))


def casts():
    everything = ("bool", *INTEGERS, *FLOATS)
    for source in everything:
        for target in everything:
            x = sample((4, 5), source, 0.0 if target.startswith("u") else -3.0)
            yield Case("cast", (x,), {"dtype": target})
    yield Case("cast", (sample((70, 301), "float32"),), {"dtype": "bfloat16"})


def rounded():
    for shape, scale, offset, bits in (
        ((), 3.0, 0, 8),
        ((0, 3), 3.0, 64, 7),
        ((70, 301), 41.0, 0, 7),
        ((70, 301), 33.0, 128, 8),
    ):
        x = sample(shape, "float32")
        attrs = {"offset": offset, "bits": bits}
        yield Case("quantize", (x, np.float32(scale)), attrs)


ELEMENTWISE = [*unary(), *binary(), *where(), *casts(), *rounded()]


def reductions():
    shapes = (
        ((), ()),
        ((7,), (0,)),
        ((3, 4), ()),
        ((2, 3, 4), (1,)),
        ((2, 3, 4), (0, 2)),
        ((2, 3, 4), (0, 1, 2)),
        ((700, 12), (0,)),
        ((50, 30, 12), (0, 1)),
        ((12, 700), (1,)),
        ((700, 12), (1,)),
        ((20000,), (0,)),
    )
    for dtype in (*FLOATS, "int32", "int64", "uint8"):
        for shape, axis in shapes:
            keepdims = len(shape) % 2 == 0
            attrs = {"axis": axis, "keepdims": keepdims}
            low = 0.9 if dtypes.is_float(dtype) else 1
            x = sample(shape, dtype, -3.0, 3.0)
            terms = max(1, x.size)
            yield Case("sum", (x,), attrs, terms)
            yield Case("prod", (sample(shape, dtype, low, 1.1),), attrs, terms)
            yield Case("max", (x,), attrs)
            yield Case("min", (x,), attrs)
    for name in ("any", "all", "max", "min"):
        for shape, axis in shapes[:6]:
            attrs = {"axis": axis, "keepdims": False}
            yield Case(name, (sample(shape, "bool"),), attrs)
    for name in ("sum", "prod"):
        x = sample((0, 3), "float32")
        yield Case(name, (x,), {"axis": (0,), "keepdims": False})
        yield Case(name, (x,), {"axis": (1,), "keepdims": True})
    for name in ("max", "min"):
        x = np.array([[1.0, np.nan], [2.0, 3.0]], np.float32)
        yield Case(name, (x,), {"axis": (0,), "keepdims": False})
        yield Case(name, (x,), {"axis": (1,), "keepdims": False})


def along_axis():
    for dtype in (*FLOATS, "int32", "uint8"):
        for shape, axis in (
            ((7,), 0),
            ((3, 4), 0),
            ((3, 4), 1),
            ((2, 3, 4), 1),
            ((0, 3), 1),
            ((50, 400), 0),
            ((5, 20000), 1),
        ):
            x = sample(shape, dtype)
            for name in ("argmax", "argmin"):
                yield Case(name, (x,), {"axis": axis, "keepdims": axis == 1})
            yield Case("argsort", (x,), {"axis": axis})
            gentle = sample(shape, dtype, 0.5, 1.1)
            for reverse in (False, True):
                attrs, terms = {"axis": axis, "reverse": reverse}, shape[axis]
                yield Case("cumsum", (x,), attrs, terms)
                yield Case("cumprod", (gentle,), attrs, terms)
    for dtype in FLOATS:
        x = specials(dtype)
        for name in ("argmax", "argmin"):
            yield Case(name, (x,), {"axis": 0, "keepdims": False})
        yield Case("argsort", (np.stack([x, x[::-1], -x]),), {"axis": 1})
    for dtype in ("bool", "int8", "int64", "uint32", "uint64"):
        x = sample((40, 9), dtype) if dtype == "bool" else extremes(dtype)
        yield Case("argsort", (x,), {"axis": 1})


def extremes(dtype):
    """Return the minimum and maximum integers of a dtype among small ones."""
    limits = np.iinfo(dtype)
    row = [limits.max, 3, limits.min, 1, limits.max, limits.max - 1, limits.min + 1, 3]
    return np.array([row, row[::-1]], dtype)


def searches():
    for dtype in (*FLOATS, "int32"):
        edges = np.sort(sample((9,), "float64", -2.0, 2.0))
        edges = np.sort(edges.astype(dtypes.numpy_dtype(dtype)).astype(np.float64))
        edges = edges.astype(dtypes.numpy_dtype(dtype))
        for shape in ((), (0,), (3, 4), (700,)):
            for side in ("left", "right"):
                values = sample(shape, dtype)
                yield Case("searchsorted", (edges, values), {"side": side})
        yield Case("searchsorted", (edges, edges), {"side": "right"})
        if dtype in FLOATS:
            edges[-2:] = np.nan
            yield Case("searchsorted", (edges, edges[::-1].copy()), {"side": "left"})


def moves():
    for dtype in ("float32", "float64"):
        pairs = sample((3, 5, 2), dtype)
        yield Case("as_complex", (pairs,))
        for name in ("as_real", "conjugate"):
            yield Case(name, (pairs[..., 0] + 1j * pairs[..., 1],))
    for dtype in (*FLOATS, "int32", "bool"):
        a, b, c = (sample(s, dtype) for s in ((2, 3), (0, 3), (4, 3)))
        yield Case("concatenate", (a, b, c), {"axis": 0})
        yield Case("concatenate", (a, a), {"axis": 1})
        yield Case("concatenate", (a,), {"axis": 1})
        yield Case("bitcast", (sample((2, 8), dtype),), {"dtype": "int16"})
        yield Case("bitcast", (sample((0, 8), dtype),), {"dtype": "int64"})
        if dtype != "bool":
            integer = f"int{8 * dtypes.itemsize(dtype)}"
            yield Case("reinterpret", (sample((2, 8), dtype),), {"dtype": integer})
            bits = sample((2, 8), dtype).view(integer)
            yield Case("reinterpret", (bits,), {"dtype": dtype})
        value = True if dtype == "bool" else 1
        widths = ((1, 2), (0, 3))
        yield Case("pad", (a,), {"widths": widths, "value": value})
        yield Case("pad", (b,), {"widths": widths, "value": value})
        yield Case("pad", (sample((), dtype),), {"widths": (), "value": value})
        yield Case("reshape", (sample((3, 4), dtype),), {"shape": (2, 6)})


def views():
    x = sample((3, 4, 5), "float32")
    yield Case("reshape", (x,), {"shape": (12, 5)})
    yield Case("transpose", (x,), {"axes": (2, 0, 1)})
    yield Case("broadcast_to", (x[:, :1],), {"shape": (2, 3, 4, 5)})
    for start, stop, step in (
        ((1, 0, 2), (3, 4, 3), (1, 1, 1)),
        ((0, 3, 4), (3, -1, 0), (2, -1, -2)),
        ((1, 0, 0), (1, 4, 5), (1, 1, 1)),
    ):
        yield Case("slice", (x,), {"start": start, "stop": stop, "step": step})


def indices():
    for dtype in (*FLOATS, "int32", "bool"):
        x = sample((5, 4, 3), dtype)
        for axis in (0, 1, 2):
            n = x.shape[axis]
            for index in (
                np.array(n - 1),
                np.array([0, -1, 1, 0, -n]),
                np.ones((2, 2)),
            ):
                for width in ("int32", "int64"):
                    yield Case("gather", (x, index.astype(width)), {"axis": axis})
        yield Case("gather", (x, np.zeros((0, 2), np.int32)), {"axis": 1})
        yield Case("gather", (x[:0], np.zeros((0,), np.int32)), {"axis": 0})
        yield Case("gather", (sample((400, 90), dtype), big_indices(400)), {"axis": 0})
        along = sample((5, 2, 3), "int32", 0, 3) % 4
        yield Case("take_along_axis", (x, along - 4), {"axis": 1})
        yield Case("take_along_axis", (x, along[:, :0].astype(np.int64)), {"axis": 1})
        yield Case(
            "take_along_axis", (sample((7,), dtype), np.array([6, -7])), {"axis": 0}
        )


def big_indices(n, count=300):
    return np.random.default_rng(0).integers(-n, n, count).astype(np.int32)


def updates():
    for mode in ("add", "mul", "set", "max", "min"):
        for dtype in (*FLOATS, "int32"):
            x = sample((5, 4, 3), dtype)
            for axis, index in (
                (0, np.array([0, -1, 0, 2])),
                (1, np.ones((2, 2))),
                (2, np.array(1)),
            ):
                index = index.astype(np.int32)
                shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
                new = sample(shape, dtype, seed="new")
                attrs = {"axis": axis, "mode": mode}
                yield Case("scatter", (x, index, new), attrs, 8)
            index = big_indices(60)
            arrays = (sample((60, 90), dtype), index, sample((300, 90), dtype))
            yield Case("scatter", arrays, {"axis": 0, "mode": mode}, 30)
            empty = (x, np.zeros((0,), np.int32), sample((0, 4, 3), dtype))
            yield Case("scatter", empty, {"axis": 0, "mode": mode})
            along = sample((5, 6, 3), "int32", 0, 3) - 2
            new = sample((5, 6, 3), dtype, seed="new")
            attrs = {"axis": 1, "mode": mode}
            yield Case("put_along_axis", (x, along, new), attrs, 8)


def boxes():
    for dtype in (*FLOATS, "bool"):
        x = sample((5, 4), dtype)
        for starts in ((1, 2), (4, 3), (-3, 0)):
            at = tuple(np.array(s, np.int32) for s in starts)
            yield Case("dynamic_slice", (x, *at), {"sizes": (2, 3)})
            yield Case(
                "dynamic_update_slice", (x, sample((2, 3), dtype, seed="u"), *at)
            )
    scalar = sample((), "float32")
    yield Case("dynamic_slice", (scalar,), {"sizes": ()})


ARRAYS = [
    *(*reductions(), *along_axis(), *searches(), *moves(), *indices(), *updates()),
    *boxes(),
]
VIEWS = list(views())
