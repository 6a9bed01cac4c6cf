"""Test extents and constants that depend on sizes, as derived from samples."""

import numpy as np
import pytest

from toolkit.export.onnx.family import Family
from toolkit.export.onnx.sizes import Extent, fit, sample_sizes
from toolkit.ir import Graph

CASES = [
    (["n"], lambda n: 5, 5),
    (["n"], lambda n: n, Extent({("n",): 1})),
    (["n"], lambda n: 3 * n - 2, Extent({("n",): 3, (): -2})),
    (["n"], lambda n: n * n, None),
    (["n"], lambda n: n // 2, None),
    (["n", "m"], lambda n, m: 4 * n * m, Extent({("n", "m"): 4})),
    (["n", "m"], lambda n, m: n + 2 * m, Extent({("n",): 1, ("m",): 2})),
    (["n", "m"], lambda n, m: n * m + n, None),
    (["n", "m"], lambda n, m: 7 * m, Extent({("m",): 7})),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("names, rule, expected", CASES)
def test_fit(names, rule, expected, seed):
    samples = sample_sizes(names, seed)
    rule_found = fit([rule(**sizes) for sizes in samples], samples)
    assert rule_found == expected
    if isinstance(rule_found, Extent):
        assert all(rule_found.evaluate(sizes) == rule(**sizes) for sizes in samples)


def test_samples_have_both_parities():
    for seed in range(3):
        assert {sizes["n"] % 2 for sizes in sample_sizes(["n"], seed)} == {0, 1}


def test_no_free_extents():
    assert sample_sizes([]) == [{}]


ARRAYS = [
    (lambda n: np.zeros((n, 3), "float32"), True),
    (lambda n: np.arange(n), True),
    (lambda n: np.arange(n)[::-1].copy(), True),
    (lambda n: np.float32(n) * np.ones((2, 1), "float32"), True),
    (lambda n: np.arange(n)[:, None] * np.array([1, 2]), True),
    (lambda n: np.full((n, 2), n), True),
    (lambda n: np.arange(n) ** 2, False),
    (lambda n: np.tri(n, dtype=bool), False),
    (lambda n: np.float32(1 / n), False),
]


@pytest.mark.parametrize("make, is_known", ARRAYS)
def test_grown_constants(make, is_known):
    samples = sample_sizes(["n"])
    empty = Graph((), (), ())
    family = Family([empty] * len(samples), samples, "test")
    constant_rule = family.fit_arrays(
        [np.asarray(make(sizes["n"])) for sizes in samples]
    )
    assert (constant_rule is not None) == is_known
