"""Tests that every path computes the same bits with 1, 2, 3 and 7 threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.backends import get_backend, openblas
from toolkit.backends.numpy import tiled_matmul

THREADS = (1, 2, 3, 7)

pytestmark = pytest.mark.skipif(
    openblas.set_threads is None, reason="this NumPy's BLAS chooses its threads itself"
)


@pytest.fixture(autouse=True)
def restore_threads():
    yield
    toolkit.config.set_num_threads(None)


def random(*shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return ops.convert_to_tensor(values, dtype=dtype)


def arrays_of(result):
    return [np.asarray(ops.convert_to_numpy(x)) for x in toolkit.tree.flatten(result)]


def check(compute, threads=THREADS):
    """Check that a function computes the same bits with every number of threads."""
    results = []
    for count in threads:
        toolkit.config.set_num_threads(count)
        results.append([x.tobytes() for x in arrays_of(compute())])
    # NumPy's BLAS may take minutes if it has more threads than there are cores.
    toolkit.config.set_num_threads(None)
    assert results[0]
    assert all(x == results[0] for x in results[1:])


# --- products -------------------------------------------------------------------------

SHAPES = {
    "small": ((60, 70), (70, 50)),
    "vector of floats": ((1, 30_000), (30_000, 1)),
    "row": ((1, 2000), (2000, 2100)),
    "column": ((2100, 2000), (2000, 1)),
    "2^28": ((700, 700), (700, 700)),
    "odd": ((601, 703), (703, 811)),
    "tall": ((30_000, 130), (130, 90)),
    "deep": ((33, 400_000), (400_000, 29)),
    "stack": ((40, 200, 200), (40, 200, 200)),
    "stack of one factor": ((3, 500, 700), (700, 900)),
    "stack of large": ((2, 1, 700, 700), (3, 700, 650)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("a, b", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.one_in(4)
def test_products(a, b, dtype, compiled):
    x, y = random(*a, dtype=dtype), random(*b, dtype=dtype, seed=1)
    multiply = toolkit.function(ops.matmul) if compiled else ops.matmul
    check(lambda: multiply(x, y))
    if not compiled:
        actual, expected = multiply(x, y).numpy(), np.matmul(x.numpy(), y.numpy())
        scale = np.abs(expected).max() * np.finfo(dtype).eps
        np.testing.assert_allclose(actual, expected, rtol=0, atol=20 * scale)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "int32"])
def test_products_of_other_dtypes(dtype):
    size = 120 if dtype == "int32" else 660
    x, y = (ops.cast(random(size, size, seed=i), dtype) for i in range(2))
    check(lambda: ops.matmul(x, y))


@pytest.mark.parametrize("transpose", [(0, 1), (1, 0), (1, 1)])
def test_products_of_transposes(transpose):
    x, y = (random(680, 680, seed=i) for i in range(2))
    a, b = (
        ops.transpose(v) if t else v for v, t in zip((x, y), transpose, strict=True)
    )
    check(lambda: ops.matmul(a, b))


@pytest.mark.parametrize("rows, depth", [(900, 700), (60, 100_000)])
def test_product_with_its_transpose_is_symmetric(rows, depth):
    x = np.random.default_rng(0).standard_normal((rows, depth))
    gemm = get_backend("numpy").blas.gemm
    check(lambda: gemm(x, x.T))
    product = gemm(x, x.T)
    np.testing.assert_array_equal(product, product.T)
    np.testing.assert_allclose(product, x @ x.T, rtol=1e-10, atol=1e-9)


def test_product_into_slices_and_unusual_layouts():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1400, 1400)).astype("float32")
    blas, memory = get_backend("numpy").blas, np.zeros((900, 900), "float32")
    expected = a[::2, ::2] @ b[:700, ::-2]
    actual = blas.gemm(a[::2, ::2], b[:700, ::-2], memory[100:800, 50:750])
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)
    assert np.shares_memory(actual, memory)
    assert not memory[:100].any() and not memory[:, 750:].any()


@pytest.mark.parametrize("equation", ["abc,cd->abd", "abc,abd->cd", "ab,ab->", "ab->a"])
def test_einsum(equation):
    shapes = dict(zip("abcd", (50, 120, 230, 240), strict=True))
    terms = equation.partition("->")[0].split(",")
    xs = [random(*(shapes[c] for c in t), seed=i) for i, t in enumerate(terms)]
    check(lambda: ops.einsum(equation, *xs))


def test_other_products():
    x, y = random(200_000), random(200_000, seed=1)
    wide, tall = random(600, 900), random(900, 700, seed=1)
    check(lambda: [ops.dot(x, y), ops.inner(x, y), ops.vdot(x, y)])
    check(lambda: [ops.tensordot(wide, tall, 1), ops.outer(x[:900], y[:900])])
    check(lambda: ops.matmul(wide, x[:900]))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_convolutions_and_their_gradients(groups, compiled):
    x, w = random(4, 30, 30, 64), random(3, 3, 64 // groups, 80, seed=1)

    def gradients(x, w):
        with toolkit.GradientTape() as tape:
            tape.watch([x, w])
            y = ops.conv(x, w, padding="same")
            loss = ops.sum(ops.square(y))
        return [y, *tape.gradient(loss, [x, w])]

    check(lambda: (toolkit.function(gradients) if compiled else gradients)(x, w))


# --- linear algebra -------------------------------------------------------------------

SIZE = 260


def positive(x):
    return ops.matmul(x, ops.transpose(x)) + SIZE * ops.eye(SIZE)


LINEAR = {
    "svd": lambda x: ops.svd(x),
    "svd of values": lambda x: ops.svd(x, compute_uv=False),
    "qr": lambda x: ops.qr(x),
    "qr complete": lambda x: ops.qr(x[:, :200], mode="complete"),
    "eigh": lambda x: ops.eigh(positive(x)),
    "eig": lambda x: ops.eig(positive(x)),
    "cholesky": lambda x: ops.cholesky(positive(x)),
    "solve": lambda x: ops.solve(positive(x), x),
    "solve_triangular": lambda x: ops.solve_triangular(positive(x), x, lower=True),
    "lstsq": lambda x: ops.lstsq(x[:, :200], x[:, 0]),
    "inv": lambda x: ops.inv(positive(x)),
    "pinv": lambda x: ops.pinv(x),
    "det": lambda x: ops.det(x / 16),
    "slogdet": lambda x: ops.slogdet(x),
    "lu_factor": lambda x: ops.lu_factor(x),
    "norm": lambda x: ops.norm(x, ord=2),
}


@pytest.mark.parametrize("name", [n for n in LINEAR if hasattr(ops, n.split()[0])])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_algebra(name, compiled, dtype):
    function = toolkit.function(LINEAR[name]) if compiled else LINEAR[name]
    x = random(SIZE, SIZE, dtype=dtype)
    check(lambda: function(x))


@pytest.mark.parametrize("name", ["svd", "qr", "eigh", "cholesky", "solve", "matmul"])
def test_the_reference_backend(name):
    x = np.random.default_rng(0).standard_normal((SIZE, SIZE))
    x = x @ x.T + SIZE * np.eye(SIZE)
    attrs = {"svd": {"full": True}, "qr": {"complete": False}}.get(name, {})
    inputs = (x, x) if name in ("solve", "matmul") else (x,)
    kernel = get_backend("reference").kernels[name]
    results = []
    for count in THREADS:
        get_backend("numpy").set_thread_count(count)
        results.append([y.tobytes() for y in arrays_of(kernel(*inputs, **attrs))])
    assert all(y == results[0] for y in results)


def test_orthogonal_weights():
    initializer = toolkit.initializers.Orthogonal(seed=1)
    check(lambda: initializer((400, 300)))


# --- training -------------------------------------------------------------------------

MODES = {
    "compiled": {},
    "without generated code": {"jit_compile": False},
    "eagerly": {"run_eagerly": True},
}


def dense():
    width = 700  # products of 2^28 multiply-adds
    hidden = layers.Dense(width, "tanh", kernel_initializer="orthogonal")
    return [toolkit.Input((width,)), hidden, layers.Dense(width), layers.Dense(3)]


def images():
    return [
        toolkit.Input((14, 14, 8)),
        layers.Conv2D(48, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(64, 3, strides=2),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(3),
    ]


def sequences():
    return [
        toolkit.Input((9,), dtype="int32"),
        layers.Embedding(50, 64),
        layers.LSTM(128, return_sequences=True),
        layers.GRU(96),
        layers.Dense(3),
    ]


NETWORKS = {"dense": dense, "images": images, "sequences": sequences}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.one_in(3)
def test_training(network, options):
    def weights():
        toolkit.utils.set_random_seed(0)
        model = toolkit.Sequential(network())
        loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"], **options)
        rng, count = np.random.default_rng(0), 700 if network is dense else 48
        shape = (count, *model.input_shape[1:])
        x = rng.integers(0, 50, shape) if network is sequences else rng.random(shape)
        y = rng.integers(0, 3, count)
        history = model.fit(x, y, batch_size=count // 2, epochs=1, verbose=0)
        model.fit(x, y, batch_size=count, epochs=1, verbose=0)
        scores = np.array([v[0] for v in history.history.values()])
        return [*model.weights, model.predict(x, verbose=0), scores]

    check(weights)


# --- distribution of the work ---------------------------------------------------------


def test_each_tile_is_computed_once():
    for threads in (1, 2, 3, 7, 100):
        computed: list[int] = []
        tiled_matmul.run_tasks(
            [partial(computed.append, i) for i in range(20)], threads
        )
        assert sorted(computed) == list(range(20))


def test_error_in_a_tile_is_raised():
    def fail():
        raise ZeroDivisionError

    for threads in (1, 3):
        with pytest.raises(ZeroDivisionError):
            tiled_matmul.run_tasks([fail] * 8, threads)


@pytest.mark.parametrize("rows", [1, 63, 64, 700, 30_000])
@pytest.mark.parametrize("columns", [1, 65, 700, 4096])
@pytest.mark.parametrize("depth", [1, 100, 900])
def test_tiles_cover_a_product_once(rows, columns, depth):
    down, across = tiled_matmul._tile_grid(rows, columns, depth)
    assert down * across <= tiled_matmul._MAX_TILES
    for extent, count in ((rows, down), (columns, across)):
        spans = list(tiled_matmul._tile_ranges(extent, count))
        assert [i for s in spans for i in range(extent)[s]] == list(range(extent))


def test_concurrent_products_keep_their_blas_threads():
    """Check that a finished thread does not change the BLAS threads of another one."""
    toolkit.config.set_num_threads(7)
    x, y = random(1, 30_000, dtype="float64"), random(30_000, 1, dtype="float64")
    a, b = random(90, 90), random(90, 90, seed=1)
    expected = ops.matmul(x, y).numpy(), ops.matmul(a, b).numpy()

    def work(_):
        products = (
            (ops.matmul(x, y).numpy(), ops.matmul(a, b).numpy()) for _ in "abcdef"
        )
        return all(
            np.array_equal(p, q)
            for f in products
            for p, q in zip(f, expected, strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))
    assert openblas.get_threads() == 7


def test_blas_threads_are_restored_after_an_error():
    toolkit.config.set_num_threads(3)
    with pytest.raises(toolkit.errors.ArgumentError, match="cholesky"):
        ops.cholesky(-ops.eye(300))
    assert openblas.get_threads() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_large_product_after_a_fork():
    toolkit.config.set_num_threads(3)
    x, y = random(700, 700), random(700, 700, seed=1)
    expected = ops.matmul(x, y).numpy()
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = int(not np.array_equal(ops.matmul(x, y).numpy(), expected))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
