"""Weights of 16 bits that programs read without a copy in float32."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from toolkit import ops
from toolkit.backends.numpy.jit.math.narrow import is_narrow

WIDTH, WORDS = 256, 700
DTYPES = [
    "bfloat16",
    pytest.param(
        "float16",
        marks=pytest.mark.skipif(
            not is_narrow("float16"), reason="needs instructions that convert float16"
        ),
    ),
]


def weights(dtype):
    """A table of words, two matrices, and a shift."""
    random = np.random.default_rng(0)
    shapes = (WORDS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,)
    arrays = [random.standard_normal(shape).astype("float32") / 16 for shape in shapes]
    return [ops.cast(x, dtype) for x in arrays]


def step(word, table, first, second, shift):
    """The next word: the nearest row of the table, for a layer and its transpose."""
    x = ops.take(table, word, axis=0)[None] + shift
    x = ops.tanh(ops.matmul(x, first))
    x = ops.matmul(x, ops.transpose(second))
    return ops.matmul(x, ops.transpose(table))[0]


def next_word(word, values):
    return ops.cast(ops.argmax(step(word, *values)), "int32")


def by_while(word, count, *values):
    return ops.while_loop(
        lambda i, word: i < count,
        lambda i, word: (i + 1, next_word(word, values)),
        (ops.cast(0, "int32"), word),
    )[1]


def by_scan(word, count, *values):
    def body(word, _):
        word = next_word(word, values)
        return word, word

    return ops.scan(body, word, length=6)[0]


def by_branch(word, count, *values):
    return ops.cond(
        count > 3, lambda: next_word(word, values), lambda: ops.cast(word * 0, "int32")
    )


def programs(function, *arguments):
    """The programs of a function and of its loops, and their bytes of memory."""
    compiled = toolkit.function(function)
    result = compiled(*arguments)
    program = compiled.get_concrete_function(*arguments).program
    return result, program


def oracle(word, count, values):
    """The same words in float64, from the rounded weights."""
    table, first, second, shift = (
        ops.cast(x, "float32").numpy().astype("float64") for x in values
    )
    for _ in range(count):
        x = np.tanh((table[word] + shift) @ first) @ second.T
        word = int(np.argmax(table @ x))
    return word


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loop", [by_while, by_branch, by_scan])
def test_invariant_weights_of_loops_keep_16_bits(loop, dtype):
    values = weights(dtype)
    arguments = (ops.cast(3, "int32"), ops.cast(6, "int32"), *values)
    word, program = programs(loop, *arguments)
    assert int(word) == oracle(3, 1 if loop is by_branch else 6, values)
    # A scan packs its weights once: it is known to have many steps.
    assert program.nbytes < WIDTH * WIDTH or loop is by_scan


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_read_weights_of_16_bits(dtype):
    values = weights(dtype)
    arguments = (ops.cast(3, "int32"), *values)
    y, program = programs(step, *arguments)
    table, first, second, shift = (
        ops.cast(x, "float32").numpy().astype("float64") for x in values
    )
    expected = np.tanh((table[3] + shift) @ first) @ second.T @ table.T
    y = ops.cast(y, "float32").numpy()
    np.testing.assert_allclose(y, expected, rtol=0.02, atol=0.02)
    assert program.nbytes < WIDTH * WIDTH


@pytest.mark.parametrize("dtype", DTYPES)
def test_readers_that_are_no_products_read_float32(dtype):
    """A sort in a loop reads a copy that the program converts once."""
    values = ops.cast(np.random.default_rng(0).standard_normal(20_000), dtype)

    def function(count, x):
        return ops.while_loop(
            lambda i, total: i < count,
            lambda i, total: (i + 1, total + ops.sort(x)[i]),
            (ops.cast(0, "int32"), ops.cast(0, dtype)),
        )[1]

    total, program = programs(function, ops.cast(3, "int32"), values)
    expected = np.sort(ops.cast(values, "float32").numpy())[:3].sum()
    np.testing.assert_allclose(float(total), expected, rtol=0.01)
    assert program.nbytes >= 4 * 20_000


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_weights_of_16_bits(dtype):
    x = ops.cast(np.random.default_rng(1).standard_normal((9, WIDTH)), dtype)
    _, first, second, _ = weights(dtype)

    def function(x, first, second):
        with toolkit.GradientTape() as tape:
            tape.watch((first, second))
            y = ops.matmul(ops.matmul(x, first), ops.transpose(second))
            loss = ops.sum(ops.cast(y, "float32") ** 2)
        return tape.gradient(loss, (first, second))

    actual = toolkit.function(function)(x, first, second)
    a, b, c = (
        ops.cast(v, "float32").numpy().astype("float64") for v in (x, first, second)
    )
    y = a @ b @ c.T
    expected = a.T @ (2 * y @ c), (2 * y).T @ (a @ b)
    for gradient, exact in zip(actual, expected, strict=True):
        assert gradient.dtype == dtype
        error = np.abs(ops.cast(gradient, "float32").numpy() - exact).max()
        assert error < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_loop", [True, False])
def test_weights_that_a_loop_reads_have_no_packed_copy(dtype, has_loop):
    weight = toolkit.Variable(weights(dtype)[1])
    x = ops.cast(np.random.default_rng(1).standard_normal((16, WIDTH)), dtype)

    def function(x):
        x = ops.tanh(ops.matmul(x, weight))
        if not has_loop:
            return ops.matmul(x, weight)
        return ops.while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, ops.tanh(ops.matmul(x, weight))),
            (ops.cast(0, "int32"), x),
        )[1]

    _, program = programs(function, x)
    copies = sum(preparation.nbytes for preparation in program.preparations)
    assert bool(copies) != has_loop
