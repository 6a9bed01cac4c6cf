"""Tests of the epilogues and layouts of products in programs, against the CPU."""

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.backends.cupy import products
from toolkit.backends.cupy.cuda.launch import Launch
from toolkit.backends.cupy.steps import Product


def arrays(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def run(gpu, function, inputs, rtol=1e-5):
    """The products of a function on the device; its results are the processor's."""
    compiled = toolkit.function(function)
    expected = compiled(*inputs)
    with toolkit.device("gpu:0"):
        actual = compiled(*inputs)
        program = compiled.get_concrete_function(*inputs).program
    for y, e in zip(actual, expected, strict=True):
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


def test_scale_of_factors_is_part_of_the_product(gpu):
    """As queries are before attention; a factor of two products scales both."""

    def f(q, k, v):
        scaled = ops.transpose(q * 0.25, (1, 0))
        return ops.matmul(k, scaled), ops.matmul(scaled, v)

    gemms, steps = run(gpu, f, arrays((5, 4), (6, 4), (5, 3)))
    assert [g.alpha for g in gemms] == [0.25, 0.25]
    assert len(steps) == 2

    def h(q, k):
        return (ops.matmul(q * np.full((2, 5, 4), 0.5, "float32"), k),)

    gemms, _ = run(gpu, h, arrays((2, 5, 4), (4, 6)))
    assert [g.alpha for g in gemms] == [0.5]

    def g(q, k):
        scaled = q * 0.25
        return ops.matmul(scaled, k), ops.exp(scaled)

    gemms, _ = run(gpu, g, arrays((5, 4), (4, 6)))
    assert [g.alpha for g in gemms] == [1.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_of_products_is_a_chain(gpu, dtype):
    def f(a, b, c, d, e):
        return (ops.matmul(a, b) + ops.matmul(c, d) + ops.matmul(a, e),)

    inputs = arrays((5, 4), (4, 3), (5, 2), (2, 3), (4, 3), dtype=dtype)
    gemms, steps = run(gpu, f, inputs)
    assert [gemm.beta for gemm in gemms] == [0.0, 1.0, 1.0]
    assert len(steps) == 3


def test_products_of_16_bit_floats_write_float32(gpu):
    def f(x, w, b):
        product = ops.matmul(ops.cast(x, "float16"), ops.cast(w, "float16"))
        return (ops.cast(product, "float32") + b,)

    gemms, _ = run(gpu, f, arrays((5, 9), (9, 3), (3,)), 1e-2)
    assert [(g.dtypes, g.epilogue) for g in gemms] == [(("float16", "float32"), "bias")]
    # A result that is larger than a factor is left for its readers to cast.
    gemms, _ = run(gpu, f, arrays((50, 9), (9, 3), (3,)), 1e-2)
    assert [(g.dtypes, g.epilogue) for g in gemms] == [(("float16",) * 2, "default")]


@pytest.mark.parametrize("which", ["n", "k", "turned", "whole"])
def test_large_16_bit_products_are_padded_for_tensor_cores(gpu, monkeypatch, which):
    monkeypatch.setattr(products, "COPY_SECONDS_PER_BYTE", 0.0)
    monkeypatch.setattr(products, "LAUNCH_SECONDS", 0.0)
    shapes, count = {  # copies of factors, the bias and the result
        "n": (((2, 6, 16), (16, 2051), (2051,)), 3),
        "k": (((12, 33), (33, 16), (16,)), 2),
        "turned": (((33, 8), (33, 17), (17,)), 3),
        "whole": (((12, 32), (32, 16), (16,)), 0),
    }[which]

    def f(x, w, b):
        x, w, b = (ops.cast(y, "bfloat16") for y in (x, w, b))
        x = ops.transpose(x) if which == "turned" else x
        return (ops.relu(ops.matmul(x, w) + b),)

    (gemm,), steps = run(gpu, f, arrays(*shapes), 2e-2)
    assert not any(n % 8 for n in (gemm.m, *gemm.leading))
    names = [s.kernel.name for s in steps if isinstance(s, Launch)]
    assert sum(name.startswith("copy_rows") for name in names) == count


def test_small_16_bit_products_are_not_padded(gpu):
    def f(x, w):
        return (ops.matmul(ops.cast(x, "float16"), ops.cast(w, "float16")),)

    (gemm,), _ = run(gpu, f, arrays((64, 65), (65, 33)), 1e-2)
    assert (gemm.m, gemm.n, gemm.k) == (33, 64, 65)


def test_batched_calls_add_their_rows_of_the_addend(gpu):
    """One batch stride cannot describe both batch axes: each image needs a call."""

    def f(q, k, r):
        scores = ops.matmul(
            ops.transpose(q, (0, 2, 1, 3)), ops.transpose(k, (0, 2, 3, 1))
        )
        return (scores * 0.125 + r,)

    inputs = arrays((2, 5, 3, 4), (2, 5, 3, 4), (2, 3, 5, 5))
    gemms, steps = run(gpu, f, inputs)
    assert [(g.alpha, g.beta, g.batch) for g in gemms] == [(0.125, 1.0, 3)] * 2
    assert len({s.offsets[3] for s in steps}) == 2


def trained(activation, dtype="float32"):
    """The gradients of two layers with an activation between them."""

    def step(x, w, b, v, c):
        inputs = [ops.cast(a, dtype) for a in (x, w, b, v, c)]
        with toolkit.GradientTape() as tape:
            tape.watch(inputs)
            x, w, b, v, c = inputs
            y = activation(ops.matmul(x, w) + b)
            loss = ops.sum(ops.square(ops.matmul(y, v) + c))
        return [ops.cast(g, "float32") for g in tape.gradient(loss, inputs)]

    return step


SHAPES = ((2, 9, 4), (4, 24), (24,), (24, 8), (8,))


def epilogues(gemms):
    return sorted(g.epilogue for g in gemms if g.epilogue not in ("default", "bias"))


def test_product_computes_relu_and_bias_gradients(gpu):
    wide = (2, 9, 4), (4, 130), (130,), (130, 8), (8,)
    gemms, _ = run(gpu, trained(ops.relu), arrays(*wide))
    assert epilogues(gemms) == ["drelu_bgrad", "relu_aux_bias"]
    # The bits of a row, in multiples of 128.
    assert {g.aux_leading for g in gemms if g.aux_leading} == {256}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_product_computes_gelu_and_bias_gradients(gpu, dtype):
    gemms, _ = run(gpu, trained(ops.gelu, dtype), arrays(*SHAPES), 0.03)
    assert epilogues(gemms) == ["dgelu_bgrad", "gelu_aux_bias"]
    assert {g.aux_leading for g in gemms} == {0, 24}


def test_strict_float32_does_not_use_the_library_gelu(gpu):
    """How exact the library's is is written nowhere."""
    function = trained(ops.gelu)
    gemms, _ = run(gpu, function, arrays(*SHAPES))
    assert epilogues(gemms) == []
    toolkit.config.set_matmul_precision("tf32")
    try:
        gemms, _ = run(gpu, function, arrays(*SHAPES), 1e-2)
    finally:
        toolkit.config.set_matmul_precision("strict")
    assert epilogues(gemms) == ["dgelu_bgrad", "gelu_aux_bias"]


@pytest.mark.parametrize("approximate", [True, False])
def test_library_gelu_is_the_tanh_approximation(gpu, approximate):
    def f(x, w, b):
        x, w, b = (ops.cast(a, "bfloat16") for a in (x, w, b))
        y = ops.gelu(ops.matmul(x, w) + b, approximate=approximate)
        return (ops.cast(y, "float32"),)

    gemms, _ = run(gpu, f, arrays((5, 8), (8, 16), (16,)), 0.02)
    assert epilogues(gemms) == ["gelu_bias"] * approximate


def test_values_with_other_readers_are_not_part_of_a_product(gpu):
    """A value that is an output, or has two readers, has to be in memory itself."""

    def f(x, w, b, v):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            z = ops.matmul(x, w) + b
            y = ops.relu(z)
            loss = ops.sum(ops.square(ops.matmul(y, v)))
        return tape.gradient(loss, x), z

    gemms, _ = run(gpu, f, arrays((9, 4), (4, 24), (24,), (24, 8)))
    assert epilogues(gemms) == []


def test_unsupported_epilogue_is_computed_by_another_kernel(gpu, monkeypatch):
    monkeypatch.setattr(type(gpu.device), "offers", lambda *arguments: False)
    gemms, _ = run(gpu, trained(ops.relu), arrays(*SHAPES))
    assert {g.epilogue for g in gemms} == {"default"}
    assert all(g.is_plain for g in gemms)


def test_weight_gradient_product_computes_the_bias_gradient(gpu):
    """After attention, no generated kernel could include the sum."""

    def f(x, w, b, g):
        with toolkit.GradientTape() as tape:
            tape.watch([w, b])
            half, w16, b16 = (ops.cast(a, "bfloat16") for a in (x, w, b))
            q = ops.reshape(ops.matmul(half, w16) + b16, (2, 6, 2, 8))
            other = ops.stop_gradient(q)
            y = ops.dot_product_attention(q, other, other)
            loss = ops.sum(ops.cast(y, "float32") * g)
        return tape.gradient(loss, [w, b])

    inputs = arrays((12, 8), (8, 16), (16,), (2, 6, 2, 8))
    gemms, _ = run(gpu, f, inputs, 0.05)
    assert epilogues(gemms) == ["bgrada"]
    assert [g.dtypes for g in gemms if g.extras == ["bias"]][-1][1] == "float32"


@pytest.mark.parametrize("shape", [(9, 9), (9, 1)])
def test_sums_over_other_axes_are_not_bias_gradients(gpu, shape):
    """A residual and a column have the number of elements of a bias, or more."""

    def f(x, w, r, v):
        with toolkit.GradientTape() as tape:
            tape.watch([x, r])
            y = ops.relu(ops.matmul(x, w) + r)
            loss = ops.sum(ops.square(ops.matmul(y, v)))
        return tape.gradient(loss, [x, r])

    gemms, _ = run(gpu, f, arrays((9, 4), (4, 9), shape, (9, 8)))
    assert epilogues(gemms) == ["relu"] * (shape == (9, 9))


def test_product_sums_only_its_reduced_axis(gpu):
    """The rows of a transposed factor or of a slice are not the rows of the array."""

    def transposed_sum(x, w, v):
        g = ops.matmul(x, w)
        return ops.matmul(v, ops.transpose(g)), ops.sum(g, axis=0)

    def partial_sum(x, w, v):
        g = ops.matmul(x, w)
        return ops.matmul(v[:, :5], g[:5]), ops.sum(g, axis=0)

    def full_sum(x, w, v):
        g = ops.matmul(x, w)
        return ops.matmul(v, g), ops.sum(g, axis=0)

    inputs = arrays((6, 4), (4, 6), (3, 6))
    epilogue_lists = [
        epilogues(run(gpu, f, inputs)[0])
        for f in (transposed_sum, partial_sum, full_sum)
    ]
    assert epilogue_lists == [[], [], ["bgrada"]]


# The operations of random programs. Matrices are square: only the meaning of an axis
# distinguishes rows from columns, and a residual from a bias.
PARTS = {
    "linear": lambda a, b, v: ops.matmul(a, b) * 0.3 + v,
    "relu": lambda a, b, v: ops.relu(ops.matmul(a, b) + v),
    "gelu": lambda a, b, v: ops.gelu(ops.matmul(a, b) + v),
    "column": lambda a, b, v: ops.relu(ops.matmul(a, b) + ops.reshape(v, (8, 1))),
    "residual": lambda a, b, v: ops.relu(ops.matmul(a * 0.5, ops.transpose(b)) + a),
    "add": lambda a, b, v: a + b,
    "turn": lambda a, b, v: ops.transpose(a),
    "rows": lambda a, b, v: a + ops.sum(b, axis=0) * 0.1,
    "split": lambda a, b, v: ops.reshape(
        ops.reshape(ops.matmul(a, b), (8, 2, 4)) + ops.reshape(v, (2, 4)), (8, 8)
    ),
}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.one_in(30)
def test_random_programs_match_the_cpu(gpu, seed):
    rng = np.random.default_rng(seed)
    dtype = ("float32", "float64", "float16")[seed % 3]
    choices = [(rng.choice(list(PARTS)), *rng.integers(0, 9, 2)) for _ in range(5)]

    def step(*arrays):
        arrays = [ops.cast(x, dtype) for x in arrays]
        with toolkit.GradientTape() as tape:
            tape.watch(arrays)
            *values, vector = arrays
            for name, i, j in choices:
                a, b = (values[-1 - k % len(values)] for k in (i, j))
                values.append(PARTS[name](a, b, vector))
            result = ops.cast(values[-1], "float32")
            loss = ops.mean(result)
        gradients = tape.gradient(loss, arrays)
        return result, *(ops.cast(g, "float32") for g in gradients if g is not None)

    inputs = [0.3 * x for x in arrays((8, 8), (8, 8), (8,))]
    run(gpu, step, inputs, 0.05 if dtype == "float16" else 1e-4)
