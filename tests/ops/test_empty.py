"""Test empty products, windows and sums: eager, compiled, and their gradients."""

from itertools import product

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.errors import ShapeError


def filled(*shape):
    numbers = np.random.default_rng(0).standard_normal(shape)
    return ops.convert_to_tensor(numbers.astype(np.float32))


def turned(x, is_turned):
    return ops.swapaxes(x, -2, -1) if is_turned else x


def products(m, k, n):
    """Return name: (function, operands) of products with these extents."""
    found = {}
    for i, j in product((False, True), repeat=2):
        a = (k, m) if i else (m, k)
        b = (n, k) if j else (k, n)
        turns = f"{'at' if i else 'a'} {'bt' if j else 'b'}"
        for name, lead in (("matrix", ()), ("batch", (2,)), ("empty batch", (0,))):
            found[f"{name} {turns}"] = (
                lambda x, y, i=i, j=j: ops.matmul(turned(x, i), turned(y, j)),
                (filled(*lead, *a), filled(*lead, *b)),
            )
        found[f"epilogue {turns}"] = (
            lambda x, y, z, i=i, j=j: ops.relu(
                ops.matmul(turned(x, i), turned(y, j)) + z
            ),
            (filled(*a), filled(*b), filled(n)),
        )
        found[f"shared {turns}"] = (
            lambda x, y, i=i, j=j: ops.matmul(turned(x, i), turned(y, j)),
            (filled(2, *a), filled(*b)),
        )
    found["einsum"] = (
        lambda x, y: ops.einsum("bmk,bnk->bmn", x, y),
        (filled(2, m, k), filled(2, n, k)),
    )
    found["vector"] = (ops.matmul, (filled(m, k), filled(k)))
    found["outer"] = (ops.outer, (filled(m), filled(n)))
    return found


def windows(batch, channels, filters):
    """Return name: (function, operands) of windows over images of 5 x 5."""
    x = filled(batch, 5, 5, channels)
    found = {
        name: (lambda x, name=name: getattr(ops, name)(x, 2, 2, "same"), (x,))
        for name in ("max_pool", "average_pool")
    }
    found["conv_transpose"] = (
        lambda x, w: ops.conv_transpose(x, w, 2, "same"),
        (x, filled(3, 3, filters, channels)),
    )
    if channels:
        found["conv"] = (
            lambda x, w: ops.conv(x, w, 1, "same"),
            (x, filled(3, 3, channels, filters)),
        )
        found["depthwise"] = (
            lambda x, w: ops.depthwise_conv(x, w, 1, "same"),
            (x, filled(3, 3, channels, 1)),
        )
    return found


def reductions(*shape):
    names = "sum mean prod std var cumsum sort softmax log_softmax".split()
    return {
        name: (lambda x, name=name: getattr(ops, name)(x, axis=-1), (filled(*shape),))
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
    def all_of(*operands):
        return [function(*operands), *gradients(function, operands)]

    eager = all_of(*operands)
    assert [g.shape for g in eager[1:]] == [x.shape for x in operands]
    for y, expected in zip(toolkit.function(all_of)(*operands), eager, strict=True):
        np.testing.assert_allclose(y.numpy(), expected.numpy(), 1e-5, 1e-6)


def test_signals_shorter_than_a_frame():
    pieces = ops.extract_sequences(filled(2, 5), 8, 2)
    assert pieces.shape == (2, 0, 8)
    real, imag = ops.stft(filled(2, 5), 8, 2, 8, center=False)
    assert real.shape == imag.shape == (2, 0, 5)
    symbol = toolkit.KerasTensor((None, None))
    assert ops.extract_sequences(symbol, 64, 16).shape == (None, None, 64)


def test_empty_sums_are_zero():
    y = ops.conv_transpose(filled(1, 4, 4, 0), filled(3, 3, 2, 0), 1, "same")
    assert y.shape == (1, 4, 4, 2) and not y.numpy().any()
    y = toolkit.function(lambda x, y: ops.matmul(x, ops.swapaxes(y, 1, 2)))(
        filled(2, 3, 0), filled(2, 5, 0)
    )
    assert y.shape == (2, 3, 5) and not y.numpy().any()


@pytest.mark.parametrize("shape", [(2, 0, 4, 8), (2, 3, 0, 8), (2, 3, 4, 0)])
def test_attention_needs_a_source(shape):
    query = filled(2, 5, *shape[2:])
    with pytest.raises(ShapeError, match="at least one source, head and feature"):
        ops.dot_product_attention(query, filled(*shape), filled(*shape))
