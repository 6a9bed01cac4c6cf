"""Functions that one compilation computes for many lengths and batch sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.core.trace import Trace
from toolkit.functions.function import Function
from toolkit.ir.extents import has_extent

# Lengths around vectors, tiles and limits of compilations, in an order in which most
# are computed by a program that a longer or shorter one has caused.
LENGTHS = (9, 33, 64, 12, 17, 16, 15, 7, 31, 32, 65, 48, 8, 5, 127, 130, 3, 2, 100, 66)


def of_length(n: int, *shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Return random numbers; -1 in the shape stands for the length."""
    random = np.random.default_rng(n)
    extents = [n if extent == -1 else extent for extent in shape]
    if dtype == "int32":
        return random.integers(0, 5, extents).astype(dtype)
    return random.normal(size=extents).astype(dtype)


def images(x: Any) -> Any:
    """Return images with a free height."""
    return x[:, :, None, :] * np.ones((1, 1, 4, 1), "float32")


def chunks(x: Any) -> Any:
    """Return groups of four rows; the last one is padded.

    The batch size is computed, so it is an extent, too.
    """
    added = -x.shape[1] % 4
    count = (x.shape[1] + added) // 4
    x = ops.pad(x, ((0, 0), (0, added), (0, 0)))
    return ops.reshape(x, (-1, count, 4, x.shape[-1]))


KERNEL = np.random.default_rng(3).normal(size=(3, 3, 6, 5)).astype("float32")
W = np.random.default_rng(0).normal(size=(24, 40)).astype("float32")
SQUARE = np.random.default_rng(1).normal(size=(24, 24)).astype("float32")
ROW = np.linspace(0.5, 1.5, 24, dtype="float32")
TABLE = np.random.default_rng(2).normal(size=(50, 24)).astype("float32")


def split_heads(x: Any) -> Any:
    x = ops.reshape(x, (x.shape[0], x.shape[1], 4, 6))
    return ops.transpose(x, (0, 2, 1, 3))


def attend(x: Any) -> Any:
    q = split_heads(x)
    scores = ops.softmax(ops.matmul(q, ops.transpose(q, (0, 1, 3, 2))) / 3.0)
    y = ops.transpose(ops.matmul(scores, q), (0, 2, 1, 3))
    return ops.reshape(y, (x.shape[0], x.shape[1], 24))


def normalize(x: Any) -> Any:
    mean = ops.mean(x, axis=-1, keepdims=True)
    return (x - mean) / ops.sqrt(ops.var(x, axis=-1, keepdims=True) + 1e-3) * ROW


def positions(x: Any) -> Any:
    numbers = ops.cast(ops.arange(x.shape[1]), "float32")
    return x + ops.expand_dims(ops.sin(numbers / 10.0), -1)


def causal(x: Any) -> Any:
    scores = ops.matmul(x, ops.transpose(x, (0, 2, 1)))
    allowed = ops.tril(ops.ones((x.shape[1], x.shape[1]), "bool"))
    return ops.matmul(ops.softmax(ops.where(allowed, scores, -1e9)), x)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "elementwise": (lambda x: ops.tanh(x) * 2.0 + ops.exp(-x * x), (3, -1, 24)),
    "vector": (lambda x: ops.sigmoid(x) + x, (-1,)),
    "columns": (lambda x: ops.relu(x) - 0.5 * x, (24, -1)),
    "row": (lambda x: x * ROW + 1.0, (3, -1, 24)),
    "sum of all": (lambda x: ops.sum(x * x), (3, -1, 24)),
    "sum of rows": (lambda x: ops.sum(x, axis=-1), (5, -1)),
    "sum of columns": (lambda x: ops.sum(x, axis=0), (-1, 24)),
    "mean of the middle": (lambda x: ops.mean(x, axis=1), (3, -1, 24)),
    "mean of rows": (lambda x: ops.mean(x, axis=-1), (5, -1)),
    "maximum": (lambda x: ops.max(x, axis=1), (3, -1, 24)),
    "maximum of rows": (lambda x: ops.max(x, axis=-1), (5, -1)),
    "variance": (lambda x: ops.var(x, axis=1), (3, -1, 24)),
    "softmax of rows": (lambda x: ops.softmax(x), (5, -1)),
    "softmax of the middle": (lambda x: ops.softmax(x, axis=1), (3, -1, 24)),
    "logsumexp": (lambda x: ops.logsumexp(x, axis=-1), (5, -1)),
    "normalization": (normalize, (3, -1, 24)),
    "product with rows": (lambda x: ops.matmul(x, W), (-1, 24)),
    "product of a batch": (lambda x: ops.matmul(x, W), (3, -1, 24)),
    "product with columns": (lambda x: ops.matmul(SQUARE, x), (24, -1)),
    "product over the length": (lambda x: ops.matmul(ops.transpose(x), x), (-1, 24)),
    "square product": (lambda x: ops.matmul(x, ops.transpose(x)), (-1, 24)),
    "square products": (lambda x: ops.einsum("bik,bjk->bij", x, x), (3, -1, 24)),
    "many products": (lambda x: ops.matmul(x, SQUARE), (-1, 3, 24)),
    "products of one row": (
        lambda x: ops.matmul(ops.mean(x, axis=1, keepdims=True), x),
        (-1, 24, 24),
    ),
    "dense layers": (
        lambda x: ops.matmul(ops.gelu(ops.matmul(x, W)), W.T),
        (3, -1, 24),
    ),
    "attention": (attend, (3, -1, 24)),
    "causal mask": (causal, (3, -1, 24)),
    "positions": (positions, (3, -1, 24)),
    "transpose": (lambda x: ops.transpose(x) * 2.0, (-1, 24)),
    "heads": (split_heads, (3, -1, 24)),
    "reshape": (lambda x: ops.reshape(x, (3, -1)) + 1.0, (3, -1, 24)),
    "reshape to rows": (lambda x: ops.reshape(x, (-1, 24)) * ROW, (3, -1, 24)),
    "concatenation": (lambda x: ops.concatenate([x, x * 2.0], axis=1), (3, -1, 24)),
    "concatenation with a constant": (
        lambda x: ops.concatenate([ops.zeros((3, 2, 24)), x], axis=1),
        (3, -1, 24),
    ),
    "stack": (lambda x: ops.stack([x, -x], axis=1), (3, -1, 24)),
    "pad": (lambda x: ops.pad(x, ((0, 0), (2, 1), (0, 0))), (3, -1, 24)),
    "shift": (lambda x: x[:, 1:] - x[:, :-1], (3, -1, 24)),
    "last": (lambda x: x[:, -1] * 3.0, (3, -1, 24)),
    "first half": (lambda x: x[:, : x.shape[1] // 2] * 3.0, (3, -1, 24)),
    "every second": (lambda x: x[:, ::2] * 3.0, (3, -1, 24)),
    "reversed": (lambda x: ops.flip(x, axis=1) * ROW, (3, -1, 24)),
    "broadcast": (lambda x: ops.broadcast_to(x[:, :1], x.shape) + x, (3, -1, 24)),
    "cumulative sum": (lambda x: ops.cumsum(x, axis=1), (3, -1, 24)),
    "sort": (lambda x: ops.sort(x, axis=-1), (5, -1)),
    "argmax": (lambda x: x * ops.cast(ops.argmax(x, axis=0), "float32"), (-1, 24)),
    "repeat": (lambda x: ops.repeat(x, 2, axis=1), (3, -1, 24)),
    "tile": (lambda x: ops.tile(x, (1, 2, 1)), (3, -1, 24)),
    "roll": (lambda x: ops.roll(x, 1, axis=1), (3, -1, 24)),
    "number of the extent": (lambda x: x * x.shape[1] / 7, (3, -1, 24)),
    "root of the extent": (
        lambda x: x / ops.sqrt(ops.cast(x.shape[1], "float32")),
        (3, -1, 24),
    ),
    "condition of Python": (lambda x: x * 2 if x.shape[1] > 20 else x, (3, -1, 24)),
    "loop of Python": (lambda x: sum(x[:, t] for t in range(x.shape[1])), (3, -1, 4)),
    "set of Python": (
        lambda x: x * 2 if x.shape[1] in {16, 32, 48} else x,
        (3, -1, 24),
    ),
    "number of Python": (lambda x: x * float(x.shape[1] % 7), (3, -1, 24)),
    "text of Python": (lambda x: x * len(f"{x.shape[1]!r}"), (3, -1, 24)),
    "text of an extent": (lambda x: x * len(f"{x.shape[1]}"), (3, -1, 24)),
    "factor that is 1 at some lengths": (lambda x: x * (x.shape[1] % 2), (3, -1, 24)),
    "term that is 0 at some lengths": (lambda x: x - (x.shape[1] % 2 - 1), (3, -1, 24)),
    "divisor that is 1 at some lengths": (
        lambda x: x / (1 + (x.shape[1] + 1) % 2),
        (3, -1, 24),
    ),
    "number of a tensor": (
        lambda x: x * float(ops.convert_to_tensor(x.shape[1]) * 2) / 40,
        (3, -1, 24),
    ),
    "condition of a tensor": (
        lambda x: x * (2 if ops.convert_to_tensor(x.shape[1]) > 20 else 3),
        (3, -1, 24),
    ),
    "branch": (
        lambda x: ops.cond(
            ops.convert_to_tensor(x.shape[1] % 2) > 0, lambda: x, lambda: -x
        ),
        (3, -1, 24),
    ),
    "mean of narrow numbers": (
        lambda x: ops.cast(ops.mean(ops.cast(x, "bfloat16") > 0), "float32") * x,
        (3, -1),
    ),
    "scan": (
        lambda x: ops.scan(
            lambda h, v: (ops.tanh(h + v), h), x[:, 0] * 0.0, ops.moveaxis(x, 1, 0)
        )[1],
        (3, -1, 24),
    ),
    "number of the extent in a loop": (
        lambda x: ops.scan(
            lambda h, v: (h / x.shape[1] + v, h * (x.shape[1] % 7)),
            ops.mean(x, axis=1),
            ops.moveaxis(x, 1, 0),
        )[1],
        (3, -1, 24),
    ),
    "number of the extent in loops of loops": (
        lambda x: ops.scan(
            lambda h, v: (
                ops.fori_loop(0, 2, lambda i, h: h * 0.5 + x.shape[1] / 7, h),
                ops.mean(h, axis=1),
            ),
            x,
            length=3,
        )[1],
        (3, -1, 24),
    ),
    "number of the extent in branches": (
        lambda x: ops.cond(
            ops.max(x) > 0, lambda: x / x.shape[1], lambda: x * x.shape[1]
        ),
        (3, -1, 24),
    ),
    "average of windows": (lambda x: ops.average_pool(x, 2), (3, -1, 6)),
    "average of padded windows": (
        lambda x: ops.average_pool(x, 3, 1, "same"),
        (3, -1, 6),
    ),
    "average of distant windows": (
        lambda x: ops.average_pool(x, 3, 2, "same"),
        (3, -1, 6),
    ),
    "maximum of distant windows": (
        lambda x: ops.max_pool(x, 3, 2, "same"),
        (3, -1, 6),
    ),
    "convolution of distant windows": (
        lambda x: ops.conv(x, KERNEL[0], 2, "same"),
        (3, -1, 6),
    ),
    "convolution of channels": (
        lambda x: ops.depthwise_conv(x, KERNEL[0, :, :, :2], 1, "same"),
        (3, -1, 6),
    ),
    "maximum of windows, repeated": (
        lambda x: ops.repeat(ops.max_pool(x, 2), 2, axis=1) * 2.0,
        (1, -1, 6),
    ),
    "products of parts of a batch": (
        lambda x: ops.matmul(ops.average_pool(x, 2), W),
        (4, -1, 24),
    ),
    "repetitions": (
        lambda x: (
            ops.repeat(x[:, :1], x.shape[1], axis=1)
            - ops.tile(x[0, :1], (x.shape[1], 1))
        ),
        (3, -1, 24),
    ),
    "identity": (
        lambda x: ops.matmul(ops.eye(x.shape[1]) + ops.tri(x.shape[1], k=1), x),
        (3, -1, 24),
    ),
    "chunks": (lambda x: ops.mean(chunks(x), axis=2), (5, -1, 16)),
    "convolution of images": (
        lambda x: ops.conv(images(x), KERNEL, 1, "same"),
        (3, -1, 6),
    ),
    "convolution of images with strides": (
        lambda x: ops.conv(images(x), KERNEL, 2, "same"),
        (3, -1, 6),
    ),
    "maximum of images": (lambda x: ops.max_pool(images(x), 2), (3, -1, 6)),
    "average of images": (lambda x: ops.average_pool(images(x), 2), (3, -1, 6)),
    "transposed convolution": (
        lambda x: ops.conv_transpose(images(x), KERNEL, 2, "same"),
        (3, -1, 5),
    ),
    "channels of images": (
        lambda x: ops.depthwise_conv(images(x), KERNEL[..., :1], 1, "same"),
        (3, -1, 6),
    ),
    "resize": (lambda x: ops.image.resize(images(x), (8, 8)), (3, -1, 6)),
    "two axes": (lambda x: ops.matmul(x, x) + ops.transpose(x), (-1, -1)),
}


# Lengths at which products are divided into steps, slots and tasks.
LONG = (2500, 3000, 700, 1025, 2048, 40, 3500, 1999, 130, 3001)
LONG_CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "product over the length": (lambda x: ops.matmul(ops.transpose(x), x), (-1, 24)),
    "product with rows": (lambda x: ops.gelu(ops.matmul(x, W)), (-1, 24)),
    "products of a batch": (
        lambda x: ops.matmul(ops.transpose(x, (0, 2, 1)), x),
        (2, -1, 24),
    ),
    "sum of all": (lambda x: ops.sum(x * x), (-1, 24)),
    "sum of columns": (lambda x: ops.sum(ops.tanh(x), axis=0), (-1, 24)),
    "normalization": (normalize, (2, -1, 24)),
    "softmax of the middle": (lambda x: ops.softmax(x, axis=1), (2, -1, 24)),
    "cumulative sum": (lambda x: ops.cumsum(x, axis=1), (2, -1, 24)),
    "gather": (lambda x: ops.take(x, ops.arange(0, 40, 3), axis=1), (2, -1, 24)),
}


@pytest.mark.filterwarnings("ignore:.*is traced for")
@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_CASES)
def test_long_values_and_gradients(name: str) -> None:
    check_case(*LONG_CASES[name], LONG)


@pytest.mark.filterwarnings("ignore:.*is traced for")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_eager_execution(name: str) -> None:
    check_case(*CASES[name], LENGTHS)


def check_case(
    function: Callable[..., Any], shape: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    """Compare a compiled function and its gradients with eager execution."""

    def compute(x: Any, weight: Any) -> tuple[Any, Any]:
        with toolkit.GradientTape() as tape:
            tape.watch([x, weight])
            y = function(x * weight)
            loss = ops.sum(y * y)
        return y, tape.gradient(loss, [x, weight])

    compiled = toolkit.function(compute)
    weight = ops.convert_to_tensor(1.25)
    for n in lengths:
        x = ops.convert_to_tensor(of_length(n, *shape))
        y, gradients = compiled(x, weight)
        expected, expected_gradients = compute(x, weight)
        for a, b in zip([y, *gradients], [expected, *expected_gradients], strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert a.shape == b.shape
            scale = max(1.0, float(np.abs(b).max(initial=0)))
            np.testing.assert_allclose(a / scale, b / scale, atol=1e-4, err_msg=str(n))


# Functions of which no operation depends on the value of a length.
FREE = [
    *("elementwise", "sum of all", "softmax of the middle", "normalization"),
    *("product of a batch", "product over the length", "dense layers", "attention"),
    *("causal mask", "positions", "reshape to rows", "concatenation", "pad", "shift"),
    *("cumulative sum", "scan", "average of windows", "average of padded windows"),
    *("average of distant windows", "maximum of distant windows"),
    *("convolution of distant windows", "convolution of channels"),
    *("maximum of windows, repeated", "products of parts of a batch"),
    *("repetitions", "identity"),
]


@pytest.mark.parametrize("name", FREE)
def test_two_compilations_compute_all_lengths(name: str) -> None:
    """A leading extent is free from its third value on."""
    function, shape = CASES[name]
    compiled = toolkit.function(function)
    for n in (53, 33, 44, 25, 61, 40, 70, 21, 75, 67, 27, 19):
        compiled(ops.convert_to_tensor(of_length(n, *shape)))
    assert compiled.trace_count == (3 if shape[0] == -1 else 2)


@pytest.mark.filterwarnings("error:.*is traced for")
def test_short_lengths_have_a_free_trace_too() -> None:
    """Products of up to 16 rows have other kernels, which longer examples exclude."""
    function = toolkit.function(
        lambda x: ops.matmul(ops.matmul(x, ops.swapaxes(x, 1, 2)), x)
    )
    counts = []
    for n in (9, 12, 10, 11, 7, 13, 8, 40, 33, 52, 13, 30, 9):
        x = of_length(n, 3, -1, 24)
        expected = x.astype("float64") @ x.swapaxes(1, 2) @ x
        np.testing.assert_allclose(function(x), expected, rtol=1e-4, atol=1e-3)
        counts.append(function.trace_count)
    assert counts[1] == counts[6] and counts[7] == counts[-1]


@pytest.mark.filterwarnings("error:.*is traced for")
def test_examples_are_no_longer_than_a_table_of_positions() -> None:
    table = ops.convert_to_tensor(of_length(1, 110, 24))
    function = toolkit.function(lambda x: x + table[: x.shape[1]])
    for n in (60, 90, 100, 70, 103, 61, 99, 80, 95):
        x = of_length(n, 3, -1, 24)
        assert np.array_equal(function(x), x + table.numpy()[:n])


def test_products_over_a_computed_extent_have_one_part() -> None:
    """Bounds of the computed batch size permit more parts than it has."""

    def function(x: Any, y: Any) -> Any:
        return ops.matmul(ops.transpose(ops.sum(chunks(x), axis=(1, 2))), y)

    compiled = toolkit.function(function)
    y = ops.convert_to_tensor(of_length(5, -1, 2))
    for n in (37, 22, 61, 30):
        x = ops.convert_to_tensor(of_length(n, 5, -1, 16))
        np.testing.assert_allclose(compiled(x, y), function(x, y), rtol=1e-3)
    assert compiled.trace_count == 2


WEIGHT = toolkit.Variable(np.random.default_rng(4).normal(size=(99, 24)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.matmul(x, WEIGHT.value[:24] * (x.shape[1] / 50)),
        lambda x: x + ops.tanh(WEIGHT.value[0] * (x.shape[1] / 50)),
        lambda x: ops.matmul(x, WEIGHT.value[x.shape[1] :][:24]),
        lambda x: (
            ops.conv(x, ops.reshape(WEIGHT.value[:24], (1, 24, 24)))
            * WEIGHT.value[1]
            * (x.shape[1] / 50)
            + WEIGHT.value[2]
        ),
    ],
    ids=["product", "sum", "offset", "scale"],
)
def test_operands_of_weights_depend_on_the_length(function: Callable[..., Any]) -> None:
    """Operands that depend on weights only are computed once for all calls."""
    compiled = toolkit.function(lambda x: function(x))
    for n in (29, 33, 64, 12, 17, 33, 29):
        x = ops.convert_to_tensor(of_length(n, 3, -1, 24))
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-4, atol=1e-4)


def test_conditions_of_loops_read_the_length() -> None:
    def function(x: Any) -> Any:
        half = x.shape[1] // 2
        return ops.while_loop(
            lambda i, y: i < half, lambda i, y: (i + 1, y + i), (0, x)
        )

    compiled = toolkit.function(function)
    for n in (9, 33, 12, 64, 17, 5):
        count, y = compiled(ops.zeros((3, n)))
        assert int(count) == n // 2
        assert np.array_equal(y, np.full((3, n), sum(range(n // 2))))
    assert compiled.trace_count == 2


def test_targets_may_be_shorter_by_a_constant() -> None:
    compiled = toolkit.function(lambda x, y: ops.sum((x[:, 3:] - y) ** 2))
    for n in (53, 33, 44, 25, 61, 29, 70):
        x, y = of_length(n, 2, -1), of_length(n - 3, 2, -1)
        np.testing.assert_allclose(
            compiled(x, y), ((x[:, 3:] - y) ** 2).sum(), rtol=1e-5
        )
    assert compiled.trace_count == 2
    assert compiled(of_length(9, 2, -1), of_length(1, 2, -1)).shape == ()


def test_means_of_bfloat16_divide_by_the_length_of_the_call() -> None:
    mean = toolkit.function(lambda x: ops.mean(x, axis=1))
    for n in (9, 33, 12, 64, 17):
        x = ops.cast(np.full((3, n), 1.5), "bfloat16")
        assert ops.cast(mean(x), "float32").tolist() == [1.5] * 3


@pytest.mark.parametrize("longest", [20, 22, 43, 100])
def test_programs_compute_lengths_up_to_three_halves_of_the_longest(
    longest: int,
) -> None:
    function = toolkit.function(lambda x: ops.sum(x, axis=1))
    for n in (longest - 1, longest, longest * 3 // 2):
        assert function(ops.ones((3, n))).tolist() == [n] * 3
    assert function.trace_count == 2


def need_integer(x: Any) -> Any:
    return x * x.shape[1].bit_length()


def reject_example(x: Any) -> Any:
    if x.shape[1] > 64:
        raise KeyError("too long")
    return x * x.shape[1].bit_length()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", [need_integer, reject_example])
def test_code_without_a_free_trace_is_compiled_for_each_length(
    function: Callable[..., Any],
) -> None:
    compiled = toolkit.function(function)
    for n in (33, 64, 7):
        x = ops.ones((3, n))
        assert np.array_equal(compiled(x), x * n.bit_length())


def test_errors_of_the_compiler_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_trace = Function._compile

    def fail(self: Function, trace: Trace, outputs: Any) -> Any:
        if has_extent(trace.inputs[0].shape):
            raise AttributeError("no kernel")
        return compile_trace(self, trace, outputs)

    monkeypatch.setattr(Function, "_compile", fail)
    function = toolkit.function(lambda x: x * 2.0)
    function(ops.ones((3, 8)))
    with pytest.warns(UserWarning, match="please report this: .*no kernel"):
        y = function(ops.ones((3, 5)))
    assert np.array_equal(y, np.full((3, 5), 2.0))


def test_returned_extents_are_those_of_the_call() -> None:
    function = toolkit.function(lambda x: (x * 2.0, x.shape[1], x.shape[1] / 2))
    for n in (9, 33, 12, 64, 17):
        assert function(ops.ones((3, n)))[1:] == (n, n / 2)


def arenas(function: Callable[..., Any], *shape: int) -> tuple[int, int]:
    """Return the bytes of a program for many lengths, and for its longest one."""
    compiled = toolkit.function(function)
    for n in (500, 700, 900):
        compiled(of_length(n, *shape))
    (family,) = compiled.free_traces._families.values()
    free = family.traces[-1]
    ((_, longest),) = free.domain.limits
    x = of_length(longest, *shape)
    one = toolkit.function(lambda x: function(x)).get_concrete_function(x)
    return free.concrete.program.plan.nbytes, one.program.plan.nbytes


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: ops.sum(ops.tanh(x), axis=(0, 1)), (4, -1, 256)),
        (lambda x: ops.matmul(ops.transpose(x), x), (-1, 24)),
        (lambda x: ops.dot_product_attention(x, x, x), (2, -1, 2, 8)),
    ],
    ids=["sum", "product", "attention"],
)
def test_memory_is_that_of_the_longest_call(
    function: Callable[..., Any], shape: tuple[int, ...]
) -> None:
    free, longest = arenas(function, *shape)
    assert free <= 4 * longest
