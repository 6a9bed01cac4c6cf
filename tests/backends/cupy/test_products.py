"""What products do beside multiplying, in programs, against the processor."""

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.backends.cupy.steps import Product


def arrays(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def run(gpu, function, inputs, rtol=1e-5):
    """The products of a function on the device; its results are the processor's."""
    compiled = toolkit.function(function)
    expected = compiled(*inputs)
    with toolkit.device("gpu:0"):
        found = compiled(*inputs)
        program = compiled.get_concrete_function(*inputs).program
    for y, e in zip(found, expected, strict=True):
        scale = np.abs(e.numpy().astype("float64")).max()
        np.testing.assert_allclose(y.numpy(), e.numpy(), rtol, rtol * scale)
    steps = [s for node in program.lowered if node for s in node.steps]
    return [s.gemm for s in steps if isinstance(s, Product)], steps


def test_a_residual_and_a_scale_are_part_of_a_product(gpu):
    def f(x, w, b, r):
        return (ops.relu(ops.matmul(x, w) * 0.5 + r + b),)

    inputs = arrays((2, 5, 4), (4, 3), (3,), (2, 5, 3))
    (gemm,), steps = run(gpu, f, inputs)
    assert (gemm.alpha, gemm.beta, gemm.epilogue) == (0.5, 1.0, "relu_bias")
    assert len(steps) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_of_products_is_a_chain(gpu, dtype):
    def f(a, b, c, d, e):
        return (ops.matmul(a, b) + ops.matmul(c, d) + ops.matmul(a, e),)

    inputs = arrays((5, 4), (4, 3), (5, 2), (2, 3), (4, 3), dtype=dtype)
    gemms, steps = run(gpu, f, inputs)
    assert [gemm.beta for gemm in gemms] == [0.0, 1.0, 1.0]
    assert len(steps) == 3


def test_products_of_halves_that_become_float32_are_written_so(gpu):
    def f(x, w, b):
        product = ops.matmul(ops.cast(x, "float16"), ops.cast(w, "float16"))
        return (ops.cast(product, "float32") + b,)

    gemms, _ = run(gpu, f, arrays((5, 4), (4, 3), (3,)), 1e-2)
    assert [(g.dtypes, g.epilogue) for g in gemms] == [(("float16", "float32"), "bias")]


def test_batches_that_are_many_calls_add_their_own_part(gpu):
    """Strides of both batch axes differ from those of one: a call for each image."""

    def f(q, k, r):
        scores = ops.matmul(
            ops.transpose(q, (0, 2, 1, 3)), ops.transpose(k, (0, 2, 3, 1))
        )
        return (scores * 0.125 + r,)

    inputs = arrays((2, 5, 3, 4), (2, 5, 3, 4), (2, 3, 5, 5))
    gemms, steps = run(gpu, f, inputs)
    assert [(g.alpha, g.beta, g.batch) for g in gemms] == [(0.125, 1.0, 3)] * 2
    assert len({s.offsets[3] for s in steps}) == 2
