"""Test empty products, windows and sums: eager, compiled, and their gradients."""

from itertools import product

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.errors import ShapeError


def random_tensor(*shape):
    numbers = np.random.default_rng(0).standard_normal(shape)
    return ops.convert_to_tensor(numbers.astype(np.float32))


def transpose_last_axes(x, is_transposed):
    return ops.swapaxes(x, -2, -1) if is_transposed else x


def products(m, k, n):
    """Return name: (function, operands) of products with these extents."""
    cases = {}
    for i, j in product((False, True), repeat=2):
        a = (k, m) if i else (m, k)
        b = (n, k) if j else (k, n)
        label = f"{'at' if i else 'a'} {'bt' if j else 'b'}"
        for name, lead in (("matrix", ()), ("batch", (2,)), ("empty batch", (0,))):
            cases[f"{name} {label}"] = (
                lambda x, y, i=i, j=j: ops.matmul(
                    transpose_last_axes(x, i), transpose_last_axes(y, j)
                ),
                (random_tensor(*lead, *a), random_tensor(*lead, *b)),
            )
        cases[f"epilogue {label}"] = (
            lambda x, y, z, i=i, j=j: ops.relu(
                ops.matmul(transpose_last_axes(x, i), transpose_last_axes(y, j)) + z
            ),
            (random_tensor(*a), random_tensor(*b), random_tensor(n)),
        )
        cases[f"shared {label}"] = (
            lambda x, y, i=i, j=j: ops.matmul(
                transpose_last_axes(x, i), transpose_last_axes(y, j)
            ),
            (random_tensor(2, *a), random_tensor(*b)),
        )
    cases["einsum"] = (
        lambda x, y: ops.einsum("bmk,bnk->bmn", x, y),
        (random_tensor(2, m, k), random_tensor(2, n, k)),
    )
    cases["vector"] = (ops.matmul, (random_tensor(m, k), random_tensor(k)))
    cases["outer"] = (ops.outer, (random_tensor(m), random_tensor(n)))
    return cases


def windows(batch, channels, filters):
    """Return name: (function, operands) of windows over images of 5 x 5."""
    x = random_tensor(batch, 5, 5, channels)
    cases = {
        name: (lambda x, name=name: getattr(ops, name)(x, 2, 2, "same"), (x,))
        for name in ("max_pool", "average_pool")
    }
    cases["conv_transpose"] = (
        lambda x, w: ops.conv_transpose(x, w, 2, "same"),
        (x, random_tensor(3, 3, filters, channels)),
    )
    if channels:
        cases["conv"] = (
            lambda x, w: ops.conv(x, w, 1, "same"),
            (x, random_tensor(3, 3, channels, filters)),
        )
        cases["depthwise"] = (
            lambda x, w: ops.depthwise_conv(x, w, 1, "same"),
            (x, random_tensor(3, 3, channels, 1)),
        )
    return cases


def reductions(*shape):
    names = "sum mean prod std var cumsum sort softmax log_softmax".split()
    return {
        name: (
            lambda x, name=name: getattr(ops, name)(x, axis=-1),
            (random_tensor(*shape),),
        )
        for name in names
    }


def cases():
    for extents in product((0, 3), (0, 4), (0, 5)):
        if 0 in extents:
            yield extents, products(*extents)
    for extents in product((0, 2), (0, 3), (0, 4)):
        if 0 in extents:
            yield extents, windows(*extents)
    for shape in ((0,), (0, 3), (3, 0), (2, 0, 3)):
        yield shape, reductions(*shape)


CASES = [
    pytest.param(function, operands, id=f"{name} {extents}")
    for extents, table in cases()
    for name, (function, operands) in table.items()
]


def gradients(function, operands):
    with toolkit.GradientTape() as tape:
        tape.watch(operands)
        y = ops.sum(function(*operands))
    return tape.gradient(y, operands)


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:divide by zero")
@pytest.mark.parametrize("function, operands", CASES)
def test_empty_extents(function, operands):
    def compute_all(*operands):
        return [function(*operands), *gradients(function, operands)]

    eager = compute_all(*operands)
    assert [g.shape for g in eager[1:]] == [x.shape for x in operands]
    for y, expected in zip(
        toolkit.function(compute_all)(*operands), eager, strict=True
    ):
        np.testing.assert_allclose(y.numpy(), expected.numpy(), 1e-5, 1e-6)


def test_signals_shorter_than_a_frame():
    frames = ops.extract_sequences(random_tensor(2, 5), 8, 2)
    assert frames.shape == (2, 0, 8)
    real, imag = ops.stft(random_tensor(2, 5), 8, 2, 8, center=False)
    assert real.shape == imag.shape == (2, 0, 5)
    symbol = toolkit.KerasTensor((None, None))
    assert ops.extract_sequences(symbol, 64, 16).shape == (None, None, 64)


def test_empty_sums_are_zero():
    y = ops.conv_transpose(
        random_tensor(1, 4, 4, 0), random_tensor(3, 3, 2, 0), 1, "same"
    )
    assert y.shape == (1, 4, 4, 2) and not y.numpy().any()
    y = toolkit.function(lambda x, y: ops.matmul(x, ops.swapaxes(y, 1, 2)))(
        random_tensor(2, 3, 0), random_tensor(2, 5, 0)
    )
    assert y.shape == (2, 3, 5) and not y.numpy().any()


@pytest.mark.parametrize("shape", [(2, 0, 4, 8), (2, 3, 0, 8), (2, 3, 4, 0)])
def test_attention_needs_a_source(shape):
    query = random_tensor(2, 5, *shape[2:])
    with pytest.raises(ShapeError, match="at least one source, head and feature"):
        ops.dot_product_attention(query, random_tensor(*shape), random_tensor(*shape))
