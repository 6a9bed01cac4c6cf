"""Generated random numbers: the bits of NumPy's generator."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tests.backends.jit.running import operand_of, run_lowered
from toolkit.backends.numpy.jit.kernels.random import lower_random_uniform


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (8,), (3, 7), (64, 33)])
@pytest.mark.parametrize("key", [(0, 0), (7, 2**32 - 1)])
def test_bits_match_numpy(dtype, shape, key):
    words = np.array(key, np.uint32)
    actual = np.empty(shape, dtype)
    lowered = lower_random_uniform(
        SimpleNamespace(attrs={}), [operand_of(words)], [operand_of(actual)]
    )
    run_lowered(lowered, [words], [actual], chunk=3)
    philox = np.random.Philox(key=np.array(key, np.uint64))
    expected = np.random.Generator(philox).random(shape, dtype=dtype)
    np.testing.assert_array_equal(actual, expected)
