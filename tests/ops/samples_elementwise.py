"""Samples of elementwise functions."""

import math
from statistics import NormalDist

import numpy as np

from tests.ops.table import PAIRS, binary, booleans, integers, sample, unary, uniform
from toolkit import ops

INF, NAN = float("inf"), float("nan")
SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, INF, -INF, NAN])

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_erfinv = np.vectorize(
    lambda x: NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2), otypes=[np.float64]
)
_fraction = np.array(
    [0.3, -1.7, 2.4, -0.6, 1.2, 3.8]
)  # not close to integers and half-integers


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _saturate(x):
    return np.clip(x, -128, 127).astype(np.int8)


UNARY = [
    *unary("exp"),
    *unary("exp2"),
    *unary("expm1"),
    *unary("log", 0.2, 4),
    *unary("log1p", -0.7, 3),
    *unary("log2", 0.2, 4),
    *unary("log10", 0.2, 4),
    *unary("sqrt", 0.3, 4),
    *unary("rsqrt", 0.3, 4, numpy=lambda x: 1 / np.sqrt(x)),
    *unary("cbrt", 0.3, 4),
    sample("cbrt", np.array([-8.0, -1.0, 27.0])),
    *unary("square"),
    *unary("reciprocal", 0.4, 3),
    *unary("sin"),
    *unary("cos"),
    *unary("tan", -1.2, 1.2),
    *unary("arcsin", -0.8, 0.8),
    *unary("arccos", -0.8, 0.8),
    *unary("arctan"),
    *unary("sinh"),
    *unary("cosh"),
    *unary("tanh"),
    *unary("arcsinh"),
    *unary("arccosh", 1.3, 4),
    *unary("arctanh", -0.8, 0.8),
    *unary("erf", numpy=_erf),
    *unary("erfc", numpy=_erfc, tolerance=5),
    sample("erfc", np.array([3.0, 5.5, 9.0, -3.0, 30.0]), numpy=_erfc, order=1),
    *unary("erfinv", -0.8, 0.8, numpy=_erfinv),
    *unary("sigmoid", numpy=_sigmoid),
    sample(
        "sigmoid", np.array([-1000.0, 1000.0]), numpy=lambda x: np.array([0.0, 1.0])
    ),
    *unary("negative"),
    *unary("abs", 0.3, 2),
    *unary("absolute", -2, -0.3),
    *unary("fabs", 0.3, 2),
    *unary("sign", 0.3, 2),
    *unary("sinc", 0.2, 2),
    sample("sinc", np.array([0.0, 1e-4, 0.1, 0.159, 0.16, 1.0])),
    *unary("i0", 0.1, 5, tolerance=20),
    sample(
        "i0", np.array([-3.0, 19.0, 21.0, 60.0]), tolerance=100, order=1, half=False
    ),
    *unary("deg2rad", -90, 90),
    *unary("rad2deg", numpy=np.rad2deg, half=False),
    *unary("real"),
    *unary("imag"),
    *unary("conj"),
    *unary("conjugate"),
    *unary("copy"),
    *unary("stop_gradient", numpy=np.copy, order=0),
    sample("angle", np.array([1.0, -2.0, 0.5])),
    sample("floor", _fraction),
    sample("ceil", _fraction),
    sample("trunc", _fraction),
    sample("round", _fraction),
    sample("round", np.array([0.5, 1.5, 2.5, -0.5]), order=0),
    sample("round", np.array([1.234, -5.678]), decimals=1, order=0),
    sample("round", np.array([123, 451], np.int32), decimals=-1),
    sample("logical_not", booleans()),
    sample("bitwise_not", integers(-9, 9)),
    sample("bitwise_invert", integers(-9, 9), numpy=np.invert),
    sample("negative", integers(-9, 9)),
    sample("abs", integers(-9, 9)),
    sample("abs", booleans()),
    sample("sign", integers(-3, 3)),
    sample("square", booleans(), numpy=lambda x: np.square(x.astype(np.int32))),
    sample("floor", integers(-9, 9), dtype="float32"),
    sample("exp", integers(-3, 3), dtype="float32"),
    sample("isnan", SPECIAL),
    sample("isinf", SPECIAL),
    sample("isfinite", SPECIAL),
    sample("isposinf", SPECIAL),
    sample("isneginf", SPECIAL),
    sample("isreal", SPECIAL),
    sample("signbit", SPECIAL),
    sample("signbit", integers(-3, 3)),
    sample("sign", SPECIAL, order=0),
    sample("sqrt", SPECIAL, order=0),
    sample("log", SPECIAL, order=0),
    sample("exp", SPECIAL, order=0),
    sample("tanh", SPECIAL, order=0),
    sample(
        "nan_to_num", SPECIAL, order=0, half=False, numpy=None, posinf=9.0, neginf=-9.0
    ),
    sample("nan_to_num", np.array([1.0, NAN]), nan=3.0),
]

CASTS = [
    sample("cast", uniform(-5, 5), "int32", numpy=lambda x, d: x.astype(np.int32)),
    sample("cast", uniform(-5, 5), "float64", numpy=lambda x, d: x, dtype="float64"),
    sample("cast", uniform(-5, 5), "bool", numpy=lambda x, d: x != 0),
    sample("cast", booleans(), "float32", numpy=lambda x, d: x * 1.0, dtype="float32"),
    sample(
        "saturate_cast",
        np.array([-300.0, 3.7, 300.0, 127.0]),
        "int8",
        numpy=lambda x, d: _saturate(x),
        dtype="int8",
    ),
    sample(
        "saturate_cast",
        np.array([-(2**31), 5, 2**31 - 1], np.int32),
        "uint8",
        numpy=lambda x, d: np.clip(x, 0, 255),
        dtype="uint8",
    ),
    sample("clip", uniform(-2, 2), -0.71, 0.83),
    sample("clip", uniform(-2, 2), None, 0.52),
    sample("clip", integers(-9, 9), -3, 4),
]

BINARY = [
    *binary("add"),
    *binary("subtract"),
    *binary("multiply"),
    *binary("divide", second=(0.5, 2)),
    sample("true_divide", uniform(-2, 2), uniform(0.5, 2)),
    *binary("divide_no_nan", second=(0.5, 2), numpy=np.divide),
    sample(
        "divide_no_nan",
        np.array([1.0, 2.0]),
        np.array([0.0, 4.0]),
        numpy=lambda a, b: np.array([0.0, 0.5]),
        order=0,
    ),
    *binary("power", first=(0.4, 2)),
    sample("power", np.array([-2.0, 3.0, -1.5]), 2),
    sample("power", np.array([-2.0, 3.0, -1.5]), 3),
    sample("power", np.array([-2.0, 3.0, -1.5]), 4),
    sample("power", np.array([-2.0, 3.0, -1.5]), -1),
    sample("power", np.array([-2.0, 3.0, -1.5]), -2.0),
    sample("power", np.array([0.3, 2.0, 7.0]), 0.5),
    sample("power", np.array([0.3, 2.0, 7.0]), -0.5),
    sample("power", np.array([0.0, 2.0, 0.0]), np.array([2, 0, 0], np.int32), order=1),
    *binary("maximum"),
    *binary("minimum"),
    *binary("fmax"),
    *binary("fmin"),
    *binary("hypot", first=(0.3, 2)),
    *binary("arctan2", first=(0.3, 2)),
    *binary("logaddexp"),
    *binary("logaddexp2"),
    sample(
        "logaddexp", np.array([INF, -INF, 800.0]), np.array([INF, -INF, 800.0]), order=0
    ),
    *binary("heaviside", first=(0.3, 2)),
    sample("heaviside", np.array([-1.0, 0.0, 2.0, NAN]), np.full(4, 0.5), order=0),
    sample("mod", np.array([5.3, -5.3, 5.3, -5.3]), np.array([2.0, 2.0, -2.0, -2.0])),
    sample("remainder", np.array([5.3, -5.3]), np.array([2.0, 3.0])),
    sample("fmod", np.array([5.3, -5.3, 5.3, -5.3]), np.array([2.0, 2.0, -2.0, -2.0])),
    sample("floor_divide", np.array([5.3, -5.3, 5.3]), np.array([2.0, 2.0, -2.0])),
    sample("mod", integers(-9, 9), integers(1, 5)),
    sample("mod", integers(-9, 9), integers(0, 2), numpy=lambda a, b: np.zeros_like(a)),
    sample("fmod", integers(-9, 9), integers(1, 5)),
    sample("floor_divide", integers(-9, 9), integers(1, 5)),
    sample(
        "floor_divide",
        integers(-9, 9),
        np.int32(0),
        numpy=lambda a, b: np.zeros_like(a),
    ),
    sample("maximum", np.array([NAN, 1.0]), np.array([0.0, NAN]), order=0),
    sample("minimum", np.array([NAN, 1.0]), np.array([0.0, NAN]), order=0),
    sample("fmax", np.array([NAN, 1.0]), np.array([0.0, NAN]), order=0),
    sample("fmin", np.array([NAN, 1.0]), np.array([0.0, NAN]), order=0),
    sample("add", integers(-9, 9), integers(-9, 9)),
    sample("add", integers(-9, 9), 2),
    sample("multiply", uniform(-2, 2), 3),
    sample("subtract", 1.5, uniform(-2, 2)),
    sample("divide", integers(1, 9), integers(1, 9), dtype="float32"),
    sample("power", integers(-3, 3), integers(0, 4)),
    sample("ldexp", uniform(-2, 2), integers(-4, 4)),
    sample("gcd", integers(-30, 30), integers(-30, 30)),
    sample("gcd", np.array([1836311903], np.int32), np.array([1134903170], np.int32)),
    sample("lcm", integers(-9, 9), integers(-9, 9)),
    *[
        sample(name, uniform(-2, 2, a), uniform(-2, 2, b))
        for name in (
            "equal",
            "not_equal",
            "less",
            "less_equal",
            "greater",
            "greater_equal",
        )
        for a, b in PAIRS
    ],
    sample("equal", integers(0, 3), integers(0, 3)),
    sample("less", SPECIAL, SPECIAL[::-1].copy()),
    *[
        sample(name, booleans((2, 1)), booleans((3,)))
        for name in ("logical_and", "logical_or", "logical_xor")
    ],
    sample("logical_and", uniform(-1, 1), integers(0, 2)),
    *[
        sample(name, integers(-9, 9), integers(-9, 9))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ],
    *[
        sample(name, integers(-9, 9), integers(0, 5))
        for name in ("left_shift", "right_shift")
    ],
    sample("bitwise_left_shift", integers(0, 9), 2),
    sample("bitwise_right_shift", integers(-9, 9), 1),
    *binary("isclose"),
    sample("isclose", SPECIAL, SPECIAL, equal_nan=True),
    sample("isclose", np.array([1.0, 2.0]), np.array([1.0 + 1e-6, 2.1])),
    sample("allclose", uniform(-2, 2), uniform(-2, 2)),
    sample("where", booleans(), uniform(-2, 2), uniform(-2, 2)),
    sample("where", booleans((3, 1)), uniform(-2, 2, (4,)), 0.0),
    sample("where", booleans((0, 3)), uniform(-2, 2, (3,)), uniform(-2, 2, ())),
    sample("where", booleans(), integers(-9, 9), 1),
    sample(
        "select",
        [booleans((4,)), booleans((4,))],
        [uniform(-2, 2, (4,)), uniform(-2, 2, (4,))],
        default=7.0,
    ),
    sample("nextafter", uniform(-2, 2), uniform(-2, 2), order=0),
    sample(
        "view",
        integers(-9, 9, (3, 4)),
        "uint32",
        dtype="uint32",
        numpy=lambda x, d: x.astype("int32").view(d),
    ),
    sample(
        "view",
        np.arange(12, dtype="int32").reshape(3, 4),
        "uint16",
        dtype="uint16",
        numpy=lambda x, d: x.astype("int32").view(d),
    ),
    sample(
        "associative_scan",
        ops.add,
        uniform(-2, 2, (5, 3)),
        numpy=lambda f, x: np.cumsum(x, 0),
    ),
]

SAMPLES = UNARY + CASTS + BINARY
