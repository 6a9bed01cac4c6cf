"""Tests of generated mathematical functions against long doubles, in ULPs."""

from __future__ import annotations

import ctypes
import functools
import math
import platform

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from toolkit import ops  # noqa: F401  (declare primitives)
from toolkit.backends.numpy.jit.builder import TYPES, Builder, vector_type
from toolkit.backends.numpy.jit.engine import compile_module
from toolkit.backends.numpy.jit.processor import PROCESSORS, Processor, current
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.backends.reference.scalars import WORDS
from toolkit.ir import PRIMITIVES
from toolkit.ir.scalars import arity
from toolkit.plans.rules import rules

LIMITS = {"float32": 2.0, "float64": 4.0}
LANES = 16  # of the measured code; the number of points is a multiple of it
COUNT = 2400  # points of each distribution
PRECISE = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def erf(x):
    # The C library's, of doubles: its error is below one unit.
    return np.array([math.erf(float(v)) for v in x], np.longdouble)


REFERENCES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "erfinv": lambda x: WORDS["erfinv"](x),  # of doubles, too
    "power": np.power,
    **{
        name: getattr(np, name)
        for name in (
            *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2"),
            *("cbrt", "log2", "sinh", "cosh", "arcsinh", "arccosh", "arctanh"),
        )
    },
}
# Functions whose bits equal NumPy's.
EXACT = ("floor_divide", "remainder")


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", "off")


# The last has no fused multiply-add.
WRITTEN_FOR = [None, "x86-64-v2"] if platform.machine() == "x86_64" else [None]


@pytest.fixture(params=WRITTEN_FOR, ids=str)
def processor(request):
    """The processor that code is written for."""
    target = request.param and PROCESSORS[request.param]
    with rules.override(processor=target):
        yield target


def compiled(name, dtype, lanes):
    """The same once for each processor."""
    return compiled_for(current(), name, dtype, lanes)


@functools.cache
def compiled_for(processor, name, dtype, lanes):
    """(module, function) of y[i] = name(x[i], ...), `lanes` at a time; 0: scalars."""
    b = Builder(lanes)
    sources = ["%x", "%y"][: arity(PRIMITIVES[name].scalar)]
    element, vector = TYPES[dtype], vector_type(TYPES[dtype], lanes)

    def element_address(base, index):
        text = f"getelementptr {element}, ptr {base}, i64 {index}"
        return b.let(text, "int64").text

    with b.loop("0", "%n", max(lanes, 1)) as i:
        arguments = [
            b.let(f"load {vector}, ptr {element_address(x, i)}, align 4", dtype, lanes)
            for x in sources
        ]
        result = PRIMITIVES[name].scalar(LLVMScalars(b), *arguments)
        b.emit(
            f"store {vector} {result.text}, ptr {element_address('%out', i)}, align 4"
        )
    parameters = [f"ptr {x}" for x in (*sources, "%out")] + ["i64 %n"]
    attributes = "attributes #0 = { nounwind }"
    text = [*sorted(b.declarations), b.function("kernel", parameters), attributes]
    module = compile_module("\n".join(text))
    types = [*[ctypes.c_void_p] * len(parameters[:-1]), ctypes.c_int64]
    return module, ctypes.CFUNCTYPE(None, *types)(module.address("kernel"))


def call(name, *arrays, lanes=LANES):
    out = np.empty_like(arrays[0])
    _, function = compiled(name, out.dtype.name, lanes)
    function(*[a.ctypes.data for a in (*arrays, out)], out.size)
    return out


def special_values(dtype):
    limits = np.finfo(dtype)
    values = [0.0, 1.0, 0.5, 2.0, 3.0, 0.55, 0.925, np.pi / 2, 1e10, 2**24 + 1]
    values += [math.inf, limits.max, limits.tiny, limits.smallest_subnormal]
    values += [limits.eps, 1 + limits.eps, 1 - limits.epsneg, 2**17, 2**30]
    # The nearest of all to a multiple of pi/2, for each of the dtypes.
    values += [6381956970095103 * 2.0**797, 16367173 * 2.0**72]
    # Where exp overflows, becomes denormal, underflows.
    values += [127.999, 128.0, 126.5, 149.0, 150.1, 1023.99, 1024.0, 1074.5, 1075.1]
    values += [88.722, 88.723, 87.4, 103.9, 104.1, 709.78, 709.79, 708.4, 745.1, 745.2]
    with np.errstate(over="ignore"):
        return np.array([math.nan, *values, *(-v for v in values)], dtype)


def points(dtype):
    """Dense where the functions bend, all magnitudes, and near multiples of pi/2."""
    rng = np.random.default_rng(0)
    limits = np.finfo(dtype)
    signs = rng.choice([-1, 1], COUNT)
    lowest, highest = np.log2(float(limits.smallest_subnormal)), limits.maxexp
    sets = [
        rng.normal(size=COUNT),
        rng.uniform(-6, 6, COUNT),
        rng.uniform(-1, 1, COUNT) * (104 if dtype == "float32" else 746),
        signs * 2.0 ** rng.uniform(lowest, highest, COUNT),
        1 + signs * 2.0 ** rng.uniform(-50, -1, COUNT),
        rng.uniform(0.7, 1.5, COUNT),
        rng.integers(-60000, 60000, COUNT) * (np.pi / 2),
        rng.uniform(-1e10, 1e10, COUNT),
        signs * (1 - 2.0 ** rng.uniform(-limits.nmant, -1, COUNT)),
        special_values(dtype),
    ]
    with np.errstate(over="ignore"):
        return whole_vectors(np.concatenate(sets).astype(dtype))


def whole_vectors(x):
    """x and its first elements again, for a multiple of the lanes."""
    return np.concatenate([x, x[: -x.size % LANES]])


def pairs(dtype):
    """Bases and exponents: all pairs of special values, then random ones."""
    rng = np.random.default_rng(1)
    special = special_values(dtype)
    largest = 38 if dtype == "float32" else 300
    bases = [
        np.repeat(special, special.size),
        rng.lognormal(0, 1, COUNT * 4),
        rng.uniform(0.9, 1.1, COUNT * 4),
        10 ** rng.uniform(-largest, largest, COUNT * 4),
        rng.uniform(-5, 5, COUNT),
    ]
    exponents = [
        np.tile(special, special.size),
        rng.normal(0, 30, COUNT * 4),
        rng.uniform(-1, 1, COUNT * 4) * (900 if dtype == "float32" else 7000),
        rng.normal(0, 2, COUNT * 4),
        rng.integers(-20, 20, COUNT),
    ]
    return [whole_vectors(np.concatenate(c).astype(dtype)) for c in (bases, exponents)]


def quotients(dtype):
    """Pairs of all magnitudes, near ones, and dividends near multiples of divisors."""
    rng = np.random.default_rng(2)
    special, limits = special_values(dtype), np.finfo(dtype)
    lowest, highest = np.log2(float(limits.smallest_subnormal)), limits.maxexp
    magnitudes = 2.0 ** rng.uniform(0, limits.nmant + 3, COUNT)
    divisors = [
        np.tile(special, special.size),
        rng.normal(size=COUNT),
        2.0 ** rng.uniform(lowest, highest, COUNT * 4),
        rng.uniform(0.5, 3, COUNT),
        np.full(COUNT, 0.1),
        float(limits.max) * rng.uniform(0.1, 1, COUNT),
        float(limits.smallest_subnormal) * rng.integers(1, 1000, COUNT),
    ]
    signs = rng.choice([-1, 1], COUNT)
    dividends = [
        np.repeat(special, special.size),
        rng.normal(size=COUNT),
        2.0 ** rng.uniform(lowest, highest, COUNT * 4),
        signs * np.floor(magnitudes) * divisors[3].astype(dtype),
        rng.integers(-50, 50, COUNT) * 0.1,
        float(limits.max) * rng.uniform(-1, 1, COUNT),
        signs * 2.0 ** rng.uniform(lowest, highest, COUNT),
    ]
    return [
        whole_vectors(np.concatenate(c).astype(dtype)) for c in (dividends, divisors)
    ]


def arguments(name, dtype):
    if arity(PRIMITIVES[name].scalar) == 1:
        return [points(dtype)]
    return pairs(dtype) if name == "power" else quotients(dtype)


def ulps(actual, exact):
    """Return the errors in ULPs; infinite where the kind of number differs."""
    limits = np.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(actual.dtype)
        unit = np.spacing(np.abs(rounded)).astype(np.longdouble)
        unit = np.maximum(unit, limits.smallest_subnormal)
        errors = np.abs(actual.astype(np.longdouble) - exact) / unit
    is_equal = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    errors = np.where(np.isfinite(rounded), errors, np.where(is_equal, 0, math.inf))
    wrong_zero = (actual == 0) & (np.signbit(actual) != np.signbit(exact))
    return np.where(wrong_zero | np.isnan(errors), math.inf, errors)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", REFERENCES)
def test_accuracy(name, dtype, processor):
    if dtype == "float64" and not PRECISE:
        pytest.skip("long doubles have no extra precision here")
    inputs = arguments(name, dtype)
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](*[x.astype(np.longdouble) for x in inputs])
    actual = call(name, *inputs)
    errors = ulps(actual, exact)
    if name == "sigmoid":  # of two ways to be next to nothing
        errors[(actual == 0) & (exact < np.finfo(dtype).tiny)] = 0
    worst = int(np.argmax(errors))
    assert errors[worst] <= LIMITS[dtype], [float(x[worst]) for x in inputs]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", [*REFERENCES, *EXACT])
def test_lanes_are_independent(name, dtype, processor):
    inputs = arguments(name, dtype)
    expected = call(name, *inputs)
    for lanes in (4, 0):
        actual = call(name, *inputs, lanes=lanes)
        np.testing.assert_array_equal(actual, expected)
        zero = actual == 0
        np.testing.assert_array_equal(
            np.signbit(actual[zero]), np.signbit(expected[zero])
        )


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", REFERENCES)
def test_special_values_match_numpy(name, dtype, processor):
    if name in ("erf", "erfinv", "sigmoid"):
        pytest.skip("NumPy has none")
    inputs = arguments(name, dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*inputs)
    special = ~np.isfinite(expected)
    for x in inputs:
        special |= np.isinf(x) | (x == 0)
    actual, expected = call(name, *inputs)[special], expected[special]
    np.testing.assert_array_equal(actual, expected)
    number = ~np.isnan(actual)
    np.testing.assert_array_equal(
        np.signbit(actual[number]), np.signbit(expected[number])
    )


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", EXACT)
def test_division_matches_numpy(name, dtype, processor):
    inputs = arguments(name, dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*inputs)
    actual = call(name, *inputs)
    np.testing.assert_array_equal(actual, expected)
    number = ~np.isnan(actual)
    np.testing.assert_array_equal(
        np.signbit(actual[number]), np.signbit(expected[number])
    )


@pytest.mark.parametrize("dtype", LIMITS)
def test_erfinv_at_its_limits(dtype, processor):
    x = np.zeros(LANES, dtype)
    x[:6] = -1, 1, 2, -math.inf, math.nan, -0.0
    y = call("erfinv", x)
    np.testing.assert_array_equal(y[:3], [-math.inf, math.inf, math.nan])
    np.testing.assert_array_equal(y[3:7], [math.nan, math.nan, 0, 0])
    assert list(np.signbit(y[5:7])) == [True, False]


@pytest.mark.parametrize("dtype", LIMITS)
def test_sigmoid_of_large_numbers(dtype):
    x = np.zeros(LANES, dtype)
    x[:4] = -math.inf, -1e30, 1e30, math.inf
    np.testing.assert_array_equal(call("sigmoid", x)[:5], [0, 0, 1, 1, 0.5])


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc"])
def test_rounding_without_instructions(name, dtype, monkeypatch):
    compiled_for.cache_clear()
    monkeypatch.setattr(Processor, "has_rounding", False)
    halves = np.arange(-8, 8.5, 0.5)
    x = whole_vectors(np.concatenate([points(dtype), halves.astype(dtype)]))
    expected = getattr(np, name)(x)
    actual = call(name, x)
    compiled_for.cache_clear()
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))
