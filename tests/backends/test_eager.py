"""Tests of large eager operations: generated code with reproducible bits."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.backends.numpy import eager
from toolkit.backends.numpy.jit.processor import PROCESSORS, current
from toolkit.backends.registry import get_backend
from toolkit.core.tensor import Tensor, run
from toolkit.errors import DTypeError
from toolkit.ir import PRIMITIVES
from toolkit.plans.rules import rules

RNG = np.random.default_rng(0)
_CONV = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
_WIDE = {"strides": (2, 1), "padding": ((0, 3), (2, 0)), "dilation": (1, 2)}
CASES = {
    "matmul": ("matmul", (160, 130), (130, 200), {}),
    "batches": ("matmul", (6, 100, 70), (6, 70, 90), {}),
    "broadcast": ("matmul", (6, 100, 70), (70, 90), {}),
    "conv": ("conv", (4, 12, 13, 8), (3, 3, 8, 16), _CONV | {"groups": 1}),
    "strides": ("conv", (4, 12, 13, 8), (3, 2, 8, 16), _WIDE | {"groups": 1}),
    "groups": ("conv", (4, 16, 16, 32), (3, 3, 4, 32), _CONV | {"groups": 8}),
    "depthwise": ("conv", (4, 16, 16, 32), (3, 3, 1, 32), _CONV | {"groups": 32}),
    "input": (
        *("conv_input_grad", (4, 12, 13, 16), (3, 3, 8, 16)),
        _CONV | {"groups": 1, "spatial": (12, 13)},
    ),
    "kernel": (
        *("conv_kernel_grad", (4, 12, 13, 8), (4, 12, 13, 16)),
        _CONV | {"groups": 1, "kernel": (3, 3)},
    ),
}


@pytest.fixture
def programs_run(monkeypatch):
    """Return the single-node programs that ran, in order."""
    ran = []
    called = eager._EagerProgram.__call__

    def record(self, *arrays):
        ran.append(self)
        return called(self, *arrays)

    monkeypatch.setattr(eager._EagerProgram, "__call__", record)
    return ran


def arrays_of(*shapes, dtype="float32"):
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


def expected_of(name, arrays, attrs):
    wide = [a.astype("float64") for a in arrays]
    return get_backend("reference").kernels[name](*wide, **attrs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_values(case, dtype, programs_run):
    name, *shapes, attrs = CASES[case]
    arrays = arrays_of(*shapes, dtype=dtype)
    first = run(PRIMITIVES[name], tuple(map(Tensor, arrays)), attrs).numpy()
    repeated = run(PRIMITIVES[name], tuple(map(Tensor, arrays)), attrs).numpy()
    assert len(programs_run) == 2 and first.dtype == dtype
    np.testing.assert_array_equal(first, repeated)
    accuracy = 1e-4 if dtype == "float32" else 1e-11
    expected = expected_of(name, arrays, attrs)
    np.testing.assert_allclose(first, expected, accuracy, accuracy)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", ["exp", "tanh", "erf", "gelu", "relu"])
def test_functions(function, dtype, programs_run):
    x = (4 * RNG.standard_normal((300, 7, 80))).astype(dtype)
    expected = getattr(ops, function)(x).numpy()
    assert programs_run and expected.dtype == dtype
    results = np.stack([getattr(ops, function)(row) for row in x])
    accuracy = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(expected, results, accuracy, accuracy)
    strided = getattr(ops, function)(ops.transpose(x)).numpy()
    np.testing.assert_array_equal(strided, expected.T)


SPECIAL = ("erf", "erfinv", "erfc", "lgamma", "digamma", "i0", "bessel_j0", "ndtri")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("function", SPECIAL)
def test_special_functions_of_few_elements(function, dtype, programs_run):
    """Check that results depend neither on the shape nor on the number of calls."""
    call = getattr(ops, function)
    x = RNG.uniform(0.1, 0.9, (5, 9)).astype(dtype)
    first = call(x).numpy()
    assert programs_run and first.dtype == dtype
    for _ in range(3):
        np.testing.assert_array_equal(call(x), first)
    np.testing.assert_array_equal(call(x.T), first.T)
    np.testing.assert_array_equal(call(x[1, ::2]), first[1, ::2])
    np.testing.assert_array_equal(call(ops.array(x)[3, 3]), first[3, 3])
    square = call(x[:4, :8])  # without padding
    for _ in range(3):
        np.testing.assert_array_equal(call(x[:4, :8]), square)
    np.testing.assert_array_equal(square, first[:4, :8])
    assert call(x[:0]).shape == (0, 9)
    accuracy = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-12}[dtype]
    exact = call(x.astype("float64"))
    np.testing.assert_allclose(first, exact, accuracy, accuracy)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms(dtype, programs_run):
    real, imag = arrays_of((64, 512), (64, 512), dtype=dtype)
    accuracy = 1e-3 if dtype == "float32" else 1e-11
    wide = real.astype("float64") + 1j * imag
    actual = ops.fft2((real, imag)), ops.rfft(real)
    expected = np.fft.fft2(wide), np.fft.rfft(wide.real)
    for y, z in zip(actual, expected, strict=True):
        np.testing.assert_allclose(y[0], z.real, accuracy, accuracy)
        np.testing.assert_allclose(y[1], z.imag, accuracy, accuracy)
    np.testing.assert_allclose(ops.irfft(actual[1]), real, accuracy, accuracy)
    assert len(programs_run) >= 4 and real.dtype == actual[0][0].dtype == dtype
    count = len(programs_run)
    ops.rfft(real[:2])  # too little work: NumPy computes it
    ops.rfft(np.ones((2, 17 * 1001), dtype))  # other lengths, too
    assert len(programs_run) == count


def test_broadcast_operands(programs_run):
    x, y = RNG.random((300, 300)) + 1, RNG.standard_normal(300)
    np.testing.assert_allclose(ops.power(x, y), x**y, 1e-13)
    np.testing.assert_allclose(ops.power(x, y[:, None]), x ** y[:, None], 1e-13)
    assert len(programs_run) == 2


X, INDICES = arrays_of((300, 300))[0], RNG.integers(-300, 300, (300, 300))
ROWS = RNG.integers(0, 300, 400)
LARGE = {
    "cumsum": (lambda x: ops.cumsum(x, 1), lambda x: np.cumsum(x, 1, "float64")),
    "sort": (lambda x: ops.sort(x, 0), lambda x: np.sort(x, 0)),
    "argsort": (
        lambda x: ops.argsort(ops.round(x), 1),
        lambda x: np.argsort(np.round(x), 1, "stable"),
    ),
    "searchsorted": (
        lambda x: ops.searchsorted(np.linspace(-1, 1, 30), ops.reshape(x, (-1,))),
        lambda x: np.searchsorted(np.linspace(-1, 1, 30), x.reshape(-1)),
    ),
    "take": (lambda x: ops.take(x, ROWS, axis=1), lambda x: x[:, ROWS]),
    "take_along_axis": (
        lambda x: ops.take_along_axis(x, INDICES, 1),
        lambda x: np.take_along_axis(x, INDICES, 1),
    ),
    "segment_sum": (
        lambda x: ops.segment_sum(x, ROWS[:300], 300),
        lambda x: np.equal.outer(np.arange(300), ROWS[:300]) @ x.astype("float64"),
    ),
    "concatenate": (
        lambda x: ops.concatenate([x, x[:, :9]], 1),
        lambda x: np.concatenate([x, x[:, :9]], 1),
    ),
    "pad": (lambda x: ops.pad(x, 3), lambda x: np.pad(x, 3)),
    "middle": (
        lambda x: ops.argmax(ops.reshape(x, (10, 30, 300)), 1),
        lambda x: np.argmax(x.reshape(10, 30, 300), 1),
    ),
    "outer": (lambda x: ops.outer(x[0], x[1]), lambda x: np.outer(x[0], x[1])),
}


@pytest.mark.parametrize("name", LARGE)
def test_moves_sorts_and_sums(name, programs_run):
    operation, expected = LARGE[name]
    first = operation(ops.array(X)).numpy()
    repeated = operation(ops.array(X)).numpy()
    assert programs_run
    np.testing.assert_array_equal(first, repeated)
    np.testing.assert_allclose(first, expected(X), 1e-5, 1e-5)


def test_single_moves_use_numpy(programs_run):
    for columns in range(3):
        ops.pad(X, ((0, 0), (0, columns + 20)))
    assert not programs_run


def test_padding_is_not_confused_with_other_numbers(programs_run):
    for value in (0.0, -0.0, float("nan"), float("nan")):
        for _ in range(2):
            actual = ops.pad(X, 5, constant_values=value).numpy()[0, 0]
            np.testing.assert_array_equal(actual, np.float32(value))
            assert np.signbit(actual) == np.signbit(value)
    kernel = get_backend("numpy").eager_kernel(PRIMITIVES["pad"])
    assert kernel and len(programs_run) == 5


def test_rare_signal_lengths_generate_no_code(programs_run):
    for n in (1000, 1024, 1001):
        ops.rfft(np.ones((100, n), "float32"))
    assert len(programs_run) == 1


def test_eager_random_numbers_match_programs(programs_run):
    def draw():
        return toolkit.random.uniform((300, 300), seed=3)

    np.testing.assert_array_equal(draw(), draw())
    eagerly = draw().numpy()
    assert programs_run
    np.testing.assert_array_equal(eagerly, toolkit.function(draw)())


def test_few_rows_of_a_large_table_use_numpy(programs_run):
    np.testing.assert_array_equal(ops.take(X, [3, -1], axis=0), X[[3, -1]])
    assert not programs_run


def test_indices_out_of_range(programs_run):
    ops.take(ops.array(X), ROWS, axis=0)
    for invalid in (300, -301):
        index = ROWS.copy()
        index[7] = invalid
        with pytest.raises(IndexError, match=f"index {invalid} is out of range"):
            ops.take(ops.array(X), index, axis=0)
        np.testing.assert_array_equal(ops.take(ops.array(X), ROWS, axis=0), X[ROWS])
    assert len(programs_run) == 4


def test_views():
    """Check factors with other memory orders, or with gaps."""
    x, y = arrays_of((2, 300, 140), (200, 140))
    actual = ops.matmul(x[:, ::2], ops.transpose(ops.array(y))).numpy()
    np.testing.assert_allclose(actual, x[:, ::2] @ y.T, 1e-4, 1e-4)


def test_threads_have_the_same_bits(programs_run):
    x, y = map(ops.array, arrays_of((200, 300), (300, 250)))
    with ThreadPoolExecutor(4) as pool:
        products = list(pool.map(lambda _: ops.matmul(x, y).numpy(), range(40)))
    assert len(programs_run) >= 40  # the second call of a thread computes it twice
    for product in products[1:]:
        np.testing.assert_array_equal(product, products[0])


def test_products_of_integers(programs_run):
    integers = RNG.integers(-9, 9, (200, 200))
    np.testing.assert_array_equal(ops.matmul(integers, integers), integers @ integers)
    assert programs_run


def test_operations_that_numpy_computes(programs_run):
    x, y = arrays_of((8, 9), (9, 7))
    np.testing.assert_allclose(ops.matmul(x, y), x @ y, 1e-5)
    short = RNG.integers(-9, 9, (200, 200), "int16")
    np.testing.assert_array_equal(ops.matmul(short, short), short @ short)
    small = RNG.standard_normal((20, 30)).astype("float32")
    np.testing.assert_array_equal(ops.exp(small), np.exp(small))
    assert not programs_run


@pytest.mark.parametrize("shape", [(1, 300), (65, 300), (3, 40, 300)])
def test_products_of_bfloat16(shape, programs_run):
    x, y = (ops.cast(a, "bfloat16") for a in arrays_of(shape, (300, 70)))
    wide = (np.asarray(ops.cast(a, "float64")) for a in (x, y))
    expected = np.matmul(*wide)
    product = ops.matmul(x, y)
    assert product.dtype == "bfloat16"
    np.testing.assert_allclose(
        ops.cast(product, "float64"), expected, rtol=2**-8, atol=1e-4
    )
    assert bool(programs_run) == current().rounds_factors
    values = ops.ones((200, 200), "bfloat16")
    assert ops.matmul(values, values).numpy().max() == 200


def test_convolutions_of_bfloat16(programs_run):
    x, kernel = (
        ops.cast(a, "bfloat16") for a in arrays_of((2, 12, 12, 16), (3, 3, 16, 24))
    )
    expected = ops.conv(*(ops.cast(a, "float64") for a in (x, kernel)))
    del programs_run[:]
    result = ops.cast(ops.conv(x, kernel), "float64")
    np.testing.assert_allclose(result, expected, rtol=2**-8, atol=1e-3)
    assert bool(programs_run) == current().rounds_factors


def test_numpy_scalar_is_not_an_array():
    kernel = get_backend("numpy").eager_kernel(PRIMITIVES["maximum"])
    x = RNG.standard_normal(100_000).astype("float32")
    expected = np.maximum(x, 0)
    for zero in (np.zeros((), "float32"), np.float32(0)):
        np.testing.assert_array_equal(kernel(x, zero), expected)


def test_values_from_files_generate_no_code(programs_run):
    x = ops.ones((300, 300))
    with rules.override(array_kernels_only=True):
        ops.exp(ops.matmul(x, x))
    assert not programs_run


WITHOUT_CODE = """
import sys
from toolkit import ops
from toolkit.plans.rules import rules

x = ops.ones((16,))
with rules.override(array_kernels_only=True):
    for _ in range(150):
        ops.bessel_j0(x)
        ops.sort(x)
assert "llvmlite" not in sys.modules
for _ in range(4):
    ops.bessel_j0(x)
assert "llvmlite" in sys.modules
"""


def test_many_calls_with_values_from_files_generate_no_code():
    environment = {**os.environ, "TOOLKIT_CACHE_DIR": "off"}
    subprocess.run([sys.executable, "-c", WITHOUT_CODE], check=True, env=environment)


def test_other_rules_and_processors_generate_no_code(programs_run):
    x = ops.ones((300, 300))
    for rule in ({"rows_independent": True}, {"processor": PROCESSORS["riscv64"]}):
        with rules.override(**rule):
            ops.exp(ops.matmul(x, x))
    assert not programs_run


def test_number_of_programs_per_operation_is_limited(monkeypatch, programs_run):
    """Check that NumPy computes shapes beyond the limit, at every later call."""
    monkeypatch.setattr(eager, "_MAX_PROGRAMS", 2)
    kernel = eager.EagerPrograms(get_backend("numpy"), PRIMITIVES["matmul"], np.matmul)
    for rows in (200, 201, 202, 200, 202):
        x, y = arrays_of((rows, 120), (120, 130))
        np.testing.assert_allclose(kernel(x, y), x @ y, 1e-4, 1e-4)
    assert len(programs_run) == 3
    kernel = eager.EagerPrograms(get_backend("numpy"), PRIMITIVES["matmul"], np.matmul)
    for rows in range(3):  # there is no program for zero elements
        kernel(*arrays_of((rows, 0), (0, 130)))
    assert len(kernel._unsupported) == 1


def test_later_precision_setting_is_used():
    x, w = map(ops.array, arrays_of((1, 64, 64, 64), (3, 3, 64, 64)))
    strict = ops.conv(x, w, padding="same").numpy()
    toolkit.config.set_matmul_precision("highest")
    try:
        highest = ops.conv(x, w, padding="same").numpy()
        compiled = toolkit.function(ops.conv)(x, w, padding="same").numpy()
    finally:
        toolkit.config.set_matmul_precision("strict")
    np.testing.assert_array_equal(highest, compiled)
    assert not np.array_equal(highest, strict)
    np.testing.assert_array_equal(ops.conv(x, w, padding="same"), strict)


def test_unchanged_operands_are_not_copied(programs_run):
    x = ops.ones((300, 300))
    assert (
        np.shares_memory(ops.stop_gradient(x).numpy(), x.numpy()) and not programs_run
    )


def test_unsupported_dtypes_are_refused():
    for count in (10, 100_000):
        with pytest.raises(DTypeError, match="bitwise_not: received"):
            ops.bitwise_not(np.ones(count, "float32"))


def run_alone(code):
    """Run a program that could hang, with an empty code cache."""
    environment = os.environ | {"TOOLKIT_CACHE_DIR": "off"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=120, env=environment)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_signal_during_code_generation():
    run_alone(
        "import signal; from toolkit import ops\n"
        "big, ran = ops.ones((70_000,)), []\n"
        "def handler(*_):\n"
        "    ran.append(float(ops.cosh(big)[0]))\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "for i, function in enumerate((ops.sin, ops.cos, ops.tan, ops.erf, ops.log)):\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.002 * i)\n"
        "    function(big)\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_during_code_generation():
    run_alone(
        "import os, threading, time; from toolkit import ops\n"
        "big = ops.ones((70_000,)); ops.sqrt(big)\n"
        "functions = ops.sin, ops.cos, ops.tan, ops.erf, ops.log, ops.sinh\n"
        "other = threading.Thread(target=lambda: [f(big) for f in functions])\n"
        "other.start(); time.sleep(0.02)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    ops.exp(big); os._exit(0)\n"
        "other.join(); assert os.waitpid(child, 0)[1] == 0\n"
    )


def test_gradients_of_a_tape(programs_run):
    # Of Variables, a tape would compile the whole reverse pass.
    x, kernel = map(ops.array, arrays_of((8, 12, 12, 8), (3, 3, 8, 16)))

    def gradients(x, kernel):
        with toolkit.GradientTape() as tape:
            tape.watch([x, kernel])
            y = ops.conv(x, kernel, strides=2, padding="same")
            loss = ops.sum(ops.square(y))
        return tape.gradient(loss, [x, kernel])

    eagerly = gradients(x, kernel)
    assert len(programs_run) == 3
    compiled = toolkit.function(gradients)(x, kernel)
    for actual, expected in zip(eagerly, compiled, strict=True):
        np.testing.assert_allclose(actual, expected, 1e-4, 1e-3)


def test_mismatched_shapes_are_refused():
    x, y = map(ops.array, arrays_of((300, 200), (300, 200)))
    with pytest.raises(ValueError, match="matmul"):
        ops.matmul(x, y)


def test_small_operations_load_no_generator():
    code = (
        "import sys; import toolkit as tk; x = tk.ops.ones((8, 8))\n"
        "tk.layers.Dense(4)(x); tk.ops.matmul(x, x)\n"
        "assert 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
