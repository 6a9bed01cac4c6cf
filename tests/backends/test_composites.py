"""Tests of eager composites: the kernels of their bodies' nodes, with the same bits."""

import weakref

import numpy as np
import pytest

import toolkit
import toolkit.ops.leaf_sums
from toolkit import ops
from toolkit.backends import composites
from toolkit.backends.composites import CompositeKernel
from toolkit.backends.registry import get_backend
from toolkit.core.tensor import Tensor, run
from toolkit.core.trace import decomposable
from toolkit.ir import PRIMITIVES, Kind

RNG = np.random.default_rng(0)
_NORM = [(6, 5), (5,), (5,)]
CASES = {
    "limit": ([(6, 5)], {"low": 0, "high": None}),
    "softplus": ([(6, 5)], {}),
    "gelu": ([(6, 5)], {}),
    "gelu_grad": ([(6, 5), (6, 5)], {}),
    "sinc": ([(6, 5)], {}),
    "sinc_grad": ([(6, 5), (6, 5)], {}),
    "softmax": ([(6, 5)], {"axis": (1,)}),
    "log_softmax": ([(6, 5)], {"axis": (0,)}),
    "variance": ([(6, 5)], {"axis": (0, 1)}),
    "batch_norm": (_NORM, {"epsilon": 1e-3}),
    "batch_norm_of": ([*_NORM, (6, 5)], {"epsilon": 1e-3, "relu": True}),
    "batch_norm_grad": ([(6, 5), *_NORM, (5,)], {}),
    "batch_statistics": (_NORM, {}),
    "sort": ([(6, 5)], {"axis": 0}),
    "reread": ([(2,), (2,)], {}),
    "leaf_terms": ([(2, 3)], {"leaves": 4}),
    "sum_leaves": ([(4, 2, 3), ()], {}),
}
_SPECIAL = "bessel_j0 bessel_j1 bessel_y0 bessel_y1 bessel_k0 bessel_k0e bessel_k1 "
_SPECIAL += "bessel_k1e i0e i1 i1e erfcinv ndtri "
_SPECIAL += "erfc lgamma digamma trigamma i0 dawsn expint fresnel_cos fresnel_sin "
_SPECIAL += "spence"
CASES |= {name: ([(6, 5)], {}) for name in _SPECIAL.split()}
_OF_TWO = "igamma igammac polygamma zeta"
CASES |= {name: ([(6, 5), (6, 5)], {}) for name in _OF_TWO.split()}


def tensors_of(shapes, dtype="float32"):
    return tuple(Tensor(RNG.standard_normal(s).astype(dtype)) for s in shapes)


# Long bodies run as generated code at any size. Its functions have other last bits.
_GENERATED = ("gelu_grad", "sinc_grad", "erfc", "i0")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_same_bits_as_the_body(name, dtype):
    (shapes, attrs), primitive = CASES[name], PRIMITIVES[name]
    tensors = tensors_of(shapes, dtype)
    tolerance = {"float32": 1e-5, "float16": 2e-3}[dtype] if name in _GENERATED else 0
    for _ in range(3):
        actual = run(primitive, tensors, attrs)
        expected = primitive.body(*tensors, **attrs)
        is_tuple = isinstance(expected, tuple)
        assert isinstance(actual, tuple) == is_tuple
        pairs = zip(actual, expected, strict=True) if is_tuple else [(actual, expected)]
        for y, z in pairs:
            assert y.dtype == z.dtype
            np.testing.assert_allclose(y, z, tolerance, tolerance)


def test_shapes_and_dtypes_have_separate_bodies():
    x = RNG.standard_normal((7, 3))
    for array in (x, x.T, x[0], x.astype("float32"), x.astype("float16")):
        y = ops.softmax(array)
        assert (y.shape, y.dtype) == (array.shape, str(array.dtype))
        np.testing.assert_allclose(np.sum(y, -1), 1, 1e-2)


def test_number_of_cached_signatures_is_limited(monkeypatch):
    monkeypatch.setattr(composites, "_MAX_SIGNATURES", 4)
    kernel = CompositeKernel(get_backend("numpy"), PRIMITIVES["gelu"])
    for count in (*range(1, 20), 19):
        output = kernel(np.zeros(count, "float32"))
    assert output is not None and len(kernel._bodies) <= 4


def test_custom_gradients_are_not_cached():
    """Check that custom gradients with one primitive name do not share bodies."""

    @ops.custom_gradient
    def doubled(x):
        return 2 * x, lambda g: g

    @ops.custom_gradient
    def scaled(x):
        return (3 * x, 5 * x), lambda g, h: g + h

    @toolkit.function
    def first(x):
        return x + 1 if float(doubled(ops.array(1.0))) > 1 else x

    @toolkit.function
    def second(x):
        a, b = scaled(ops.array(1.0))
        return x + a if float(b) > 1 else x

    np.testing.assert_array_equal(first(ops.zeros(2)), [1, 1])
    np.testing.assert_array_equal(second(ops.zeros(2)), [3, 3])
    np.testing.assert_array_equal(first(ops.zeros(3)), [1, 1, 1])


def test_intermediate_values_are_freed(monkeypatch):
    """Check that a chain of ten sums keeps at most two results alive."""

    def chain(x):
        for _ in range(10):
            x = x + 1.0
        return x

    primitive = decomposable("chain_of_sums", chain)
    backend, arrays, peaks = get_backend("numpy"), [], []

    def add(x, y):
        peaks.append(sum(ref() is not None for ref in arrays))
        result = np.add(x, y)
        arrays.append(weakref.ref(result))
        return result

    try:
        monkeypatch.setattr(backend, "eager_kernel", lambda primitive: add)
        kernel = CompositeKernel(backend, primitive)
        assert kernel(np.zeros(3, "float32")) is None  # at the first use
        output = kernel(np.zeros(3, "float32"))
    finally:
        del PRIMITIVES["chain_of_sums"]
    np.testing.assert_array_equal(output, [10, 10, 10])
    assert len(peaks) == 10 and max(peaks) <= 1


def test_all_composites_are_tested():
    """Check that this file covers all composites.

    Attention, integrals, the composites of the TensorFlow names and those of shards
    have their own files. Eager scans run step by step.
    """
    tested_elsewhere = {
        "attention",
        "attention_grad",
        "attention_grad_of",
        "batch_norm_grad_of",
    }
    tested_elsewhere |= {"least_squares", "singular_values", "small_det"}
    tested_elsewhere |= {"lstm", "gru", "rnn", "matmul_int4", *CASES}
    tested_elsewhere |= {"exchange_rows", "gather_in_shard"}
    tested_elsewhere |= {"betainc_integral", "igamma_integral", "igammac_integral"}
    tested_elsewhere |= {"igamma_ratio", "igammac_ratio"}
    tested_elsewhere |= {"add_in_shard", "set_in_shard"}
    composites = (p for p in PRIMITIVES.values() if p.kind is Kind.COMPOSITE)
    modules = {p.name: p.body.__module__ for p in composites}
    core = {name for name, module in modules.items() if module.startswith("toolkit.")}
    shell = {name for name in core if modules[name].startswith("toolkit.compat.")}
    assert core - shell <= tested_elsewhere
