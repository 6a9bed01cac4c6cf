"""Tests of repeated eager operations, whose Python code runs only at first."""

import pickle
import signal
import sys
import threading
import time
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import count_functions, threads_running
from toolkit import ops
from toolkit.core import operation_replays as replays
from toolkit.ops.symbolic import operation

RNG = np.random.default_rng(0)


def value(*shape):
    return ops.convert_to_tensor(RNG.normal(size=shape).astype("float32"))


def repeated(call, times=4):
    for _ in range(times):
        y = call()
    return y


X, Y = value(3, 4), value(3, 4)
CALLS = {
    "layer_normalization": lambda: ops.layer_normalization(X),
    "softmax": lambda: ops.softmax(X, axis=0),
    "mean": lambda: ops.mean(X, axis=(0, 1), keepdims=True),
    "add a number": lambda: X + 1.5,
    "concatenate": lambda: ops.concatenate([X, Y], axis=-1),
    "einsum": lambda: ops.einsum("ij,kj->ik", X, Y),
    "top_k": lambda: ops.top_k(X, 2),
    "slices": lambda: X[1:, ::2],
    "resize": lambda: ops.image.resize(ops.reshape(X, (3, 4, 1)), (5, 7)),
    "i0": lambda: ops.i0(X),
    "svd": lambda: ops.svd(X),
    "reciprocal": lambda: ops.reciprocal(X),
    "tril": lambda: ops.tril(X),
    "select": lambda: ops.select([X > 0, Y > 0], [X, Y], 2.0),
    "var": lambda: ops.var(X, axis=1),
}


IMAGES = ops.convert_to_tensor(
    RNG.choice(np.array([0.0, -0.0, 1.5, -2.0], "float32"), (2, 5, 6, 4))
)
KERNEL = value(3, 2, 4, 6)
CALLS |= {
    "conv": lambda: ops.conv(IMAGES, KERNEL),
    "padded conv": lambda: ops.conv(IMAGES, KERNEL, padding="same", strides=(2, 1)),
    "dilated conv": lambda: ops.conv(IMAGES, KERNEL, dilation_rate=2, padding="same"),
    "groups": lambda: ops.conv(IMAGES, KERNEL[:, :, :2], padding="same"),
    "pointwise": lambda: ops.conv(IMAGES, KERNEL[:1, :1]),
    "pointwise groups": lambda: ops.conv(IMAGES, KERNEL[:1, :1, :2]),
    "pointwise with steps": lambda: ops.conv(IMAGES, KERNEL[:1, :1], strides=2),
    "max_pool": lambda: ops.max_pool(IMAGES, 2, padding="same"),
    "overlapping max_pool": lambda: ops.max_pool(IMAGES, (3, 2), 1),
    "average_pool": lambda: ops.average_pool(IMAGES, 2, padding="same"),
    "max_pool of integers": lambda: ops.max_pool(ops.cast(IMAGES, "int32"), 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_replays_have_the_bits_of_the_first_call(name):
    replays.clear()
    before = count_functions(CALLS[name])
    first = CALLS[name]()
    y = repeated(CALLS[name])
    assert type(y) is type(first)
    for a, b in zip(tk.tree.flatten(y), tk.tree.flatten(first), strict=True):
        assert a.spec == b.spec
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert count_functions(CALLS[name]) < before


ARGUMENTS = [(0.0,), (-0.0,), (0,), (False,), (1,), (1.0,), (True,), (float("nan"),)]


def test_numbers_of_other_types_and_signs_are_separate():
    other = np.array([1, 2], "int32")
    integers = ops.array(other)
    for _ in range(4):
        for argument in ARGUMENTS:
            y, z = integers * argument[0], ops.multiply(other, argument[0])
            assert y.dtype == z.dtype
            np.testing.assert_array_equal(y, z)
            assert np.signbit(y).tolist() == np.signbit(z).tolist()


def test_slices_differ_from_tuples_of_their_bounds():
    cube = value(4, 4, 4)
    for _ in range(4):
        assert cube[1:2:1].shape == (1, 4, 4)
        assert cube[1, 2, 1].shape == ()
        assert X[0:2].shape == (2, 4) and X[0, 2, None].shape == (1,)


def test_bounds_of_slices_can_be_tensors():
    x = ops.arange(6)
    for i in range(6):
        assert x[ops.array(i) : ops.array(i + 1)].tolist() == [i]


def test_order_of_keyword_arguments():
    condition, ones, zeros = ops.ones(3, "bool"), ops.ones(3), ops.zeros(3)
    # Equal values do not show which tensor is which argument.
    repeated(lambda: ops.where(condition, x2=ones, x1=ones))
    assert ops.where(condition, x2=ones, x1=zeros).tolist() == [0, 0, 0]


def test_operations_of_the_user_run_in_each_call():
    called = []

    @operation
    def doubled(x):
        called.append(1)
        return x * 2

    repeated(lambda: doubled(X), times=6)
    assert len(called) == 6


def test_large_numbers_become_infinite_without_a_warning():
    half = ops.cast(X, "float16")
    for number in (1e300, 2**40):
        for _ in range(4):
            assert np.isinf(half * number).all()
    with pytest.raises(tk.errors.DTypeError, match="does not fit"):
        half * 10**400


def test_values_decide_about_shapes_branches_and_errors():
    def chosen(x):
        return ops.cond(ops.sum(x) > 0, lambda: x, lambda: -x)

    for i in range(1, 6):
        x = ops.array([i, 1, 2])
        assert ops.unique(x).shape[0] == len({i, 1, 2})
        assert ops.nonzero(x - i)[0].shape == (3 - [i, 1, 2].count(i),)
        assert float(ops.sum(chosen(ops.array([-1.0 * i])))) == i
        assert ops.one_hot(ops.array([1.0 * (i % 3)]), 3).shape == (1, 3)
        assert ops.bincount(x, minlength=2).shape[0] == max(i, 2) + 1
    with pytest.raises(tk.errors.ArgumentError, match="whole numbers"):
        ops.one_hot(ops.array([0.5]), 3)


def test_errors_of_kernels_are_explained():
    x, indices = value(3, 2), ops.array([0, 2])
    repeated(lambda: ops.take(x, indices, axis=0))
    with pytest.raises(tk.errors.OutOfRangeError):
        ops.take(x, ops.array([0, 3]), axis=0)
    with pytest.raises(tk.errors.ShapeError):
        ops.matmul(x, x)


def test_errors_of_first_calls_have_no_context():
    replays.clear()
    for _ in range(4):
        with pytest.raises(tk.errors.ArgumentError) as caught:
            ops.roll(X, 1, axis=5)
        assert caught.value.__context__ is None


def test_errors_of_signal_handlers_are_raised():
    class Late(Exception):
        pass

    def handle(*_):
        raise Late

    x, before = value(600, 600), signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(3):
            with pytest.raises(Late):
                signal.setitimer(signal.ITIMER_REAL, 1e-3)
                ops.svd(x)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_functions_of_the_user_run_in_each_call():
    called = []

    def body(x):
        called.append(1)
        return x + 1

    for _ in range(5):
        ops.vectorized_map(body, X)
        ops.map(body, X)
    assert len(called) >= 10


def test_settings_have_an_effect():
    integers = ops.array([1, 2])
    assert repeated(lambda: integers / 2).dtype == "float32"
    tk.config.set_floatx("float64")
    try:
        assert repeated(lambda: integers / 2).dtype == "float64"
    finally:
        tk.config.set_floatx("float32")
    assert (integers / 2).dtype == "float32"


def test_random_numbers_differ():
    generator = tk.random.SeedGenerator(0)
    for seed in (None, generator):
        draws = {
            np.asarray(tk.random.dropout(value(64) * 0 + 1, 0.5, seed=seed)).tobytes()
            for _ in range(6)
        }
        assert len(draws) == 6


def test_gradients_of_replayed_operations():
    x = value(3, 4)

    def gradient():
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = ops.sum(ops.softmax(ops.layer_normalization(x)) * Y)
        return tape.gradient(y, x, ops.ones(()))

    first = gradient()
    np.testing.assert_array_equal(repeated(gradient), first)
    assert np.any(np.asarray(first))


def test_gradient_is_none_for_values_that_no_tape_watches():
    x = tk.Variable([1.0, 2.0])
    for _ in range(4):
        with tk.GradientTape() as tape:
            y = ops.square(ops.stop_gradient(x.value))
        assert tape.gradient(y, x) is None


def test_outputs_are_separate_arrays():
    x = value(3)
    first, second = (repeated(lambda: ops.ones_like(x) * 2) for _ in range(2))
    first.numpy()[...] = 5
    np.testing.assert_array_equal(second, [2, 2, 2])
    np.testing.assert_array_equal(ops.ones_like(x) * 2, [2, 2, 2])


def test_traces_and_symbols():
    repeated(lambda: ops.softmax(X))
    compiled = tk.function(lambda x: ops.softmax(x))
    np.testing.assert_allclose(compiled(X), ops.softmax(X), rtol=1e-6)
    assert ops.softmax(tk.Input((4,))).shape == (None, 4)
    with tk.device("cpu:0"):
        assert ops.softmax(X).device == "cpu:0"


def test_new_signatures_replace_those_without_calls(monkeypatch):
    replays.clear()
    monkeypatch.setattr(replays, "_MAX_CALLS", 4)
    used = value(50)
    before = count_functions(lambda: used * 3)
    for i in range(1, 30):
        x = value(i)
        np.testing.assert_array_equal(repeated(lambda x=x: x + x), 2 * np.asarray(x))
        repeated(lambda: used * 3, times=2)
        assert replays.count() <= 8
    assert count_functions(lambda: used * 3) < before  # calls keep a replay
    last, before = value(31), count_functions(lambda: value(31) + 1)
    repeated(lambda: last + 1, times=40)
    assert count_functions(lambda: last + 1) < before
    replays.clear()


@pytest.mark.parametrize("shape", [(10_000,), (100, 100)])
def test_long_lists_are_not_stored(shape):
    replays.clear()
    tracemalloc.start()
    try:
        for _ in range(20):
            ops.sum(RNG.normal(size=shape).tolist())
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 1e6


def test_observed_modules_are_pickled_by_name():
    repeated(lambda: ops.exp(X))
    assert pickle.loads(pickle.dumps(ops)) is ops


def test_threads():
    x, wrong = value(16), []
    expected = np.asarray(ops.layer_normalization(x)).tobytes()

    def call():
        for _ in range(100):
            if np.asarray(ops.layer_normalization(x)).tobytes() != expected:
                wrong.append(1)

    with threads_running(call):
        for _ in range(20):
            replays.clear()
    assert not wrong


def test_settings_that_change_during_calls_of_other_threads():
    is_finished = threading.Event()

    def call():
        while not is_finished.is_set():
            for n in range(6):
                ops.zeros(n)

    interval, found = sys.getswitchinterval(), set()
    sys.setswitchinterval(1e-5)
    try:
        with threads_running(call):
            for i in range(150):
                dtype = ("float64", "float32")[i % 2]
                tk.config.set_floatx(dtype)
                time.sleep(1e-3)
                found |= {(dtype, ops.zeros(n).dtype) for n in range(6)}
            is_finished.set()
    finally:
        sys.setswitchinterval(interval)
        tk.config.set_floatx("float32")
    assert found == {("float32", "float32"), ("float64", "float64")}


CREATIONS = {
    "linspace": lambda: ops.linspace(0.0, 1.0, 9),
    "eye": lambda: ops.eye(3, 4, k=1),
    "zeros": lambda: ops.zeros((2, 3), "int32"),
    "arange": lambda: ops.arange(5),
    "kaiser": lambda: ops.kaiser(9, 4.0),
    "full_like": lambda: ops.full_like(X, 2.5),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_created_tensors_are_separate_arrays(name):
    replays.clear()
    call = CREATIONS[name]
    before = count_functions(call)
    first = call()
    expected = np.array(first)
    for _ in range(3):
        y = call()
        assert y.spec == first.spec
        np.testing.assert_array_equal(y, expected)
        np.asarray(y)[...] = 7
    assert count_functions(call) < before


VIEWS = {
    "reshape": lambda: ops.reshape([1.0, 2.0, 3.0, 4.0], (2, 2)),
    "transpose": lambda: ops.transpose([[1.0, 2.0], [3.0, 4.0]]),
    "flip": lambda: ops.flip([1.0, 2.0]),
    "split": lambda: ops.split([1.0, 2.0, 3.0, 4.0], 2)[1],
    "stop_gradient": lambda: ops.stop_gradient([1.0, 2.0]),
}


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_lists_are_separate_arrays(name, is_recorded):
    replays.clear()
    call, expected = VIEWS[name], np.array(VIEWS[name]())
    for _ in range(4):
        with tk.GradientTape() if is_recorded else nullcontext():
            y = call()
        np.testing.assert_array_equal(y, expected)
        np.asarray(y)[...] = 7


def test_created_tensors_follow_the_settings():
    assert repeated(lambda: ops.zeros(3)).dtype == "float32"
    tk.config.set_floatx("float64")
    try:
        assert repeated(lambda: ops.zeros(3)).dtype == "float64"
    finally:
        tk.config.set_floatx("float32")
    with pytest.raises(ValueError, match="shape"):
        repeated(lambda: ops.zeros((2, -3)))


def test_gradients_of_created_tensors():
    x = value(3)
    for _ in range(4):
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = ops.sum(x * ops.linspace(0.0, 2.0, 3) + ops.ones_like(x))
        np.testing.assert_array_equal(tape.gradient(y, x), [0, 1, 2])


DRAWS = {
    "uniform": lambda seed: tk.random.uniform((2, 3), seed=seed),
    "normal": lambda seed: tk.random.normal((5,), 1.0, 2.0, seed=seed),
    "randint": lambda seed: tk.random.randint((4,), 0, 9, seed=seed),
    "dropout": lambda seed: tk.random.dropout(X, 0.5, seed=seed),
    "shuffle": lambda seed: tk.random.shuffle(X, seed=seed),
    "categorical": lambda seed: tk.random.categorical(X, 3, seed=seed),
    "beta": lambda seed: tk.random.beta((3,), 2.0, 3.0, seed=seed),
}


@pytest.mark.parametrize("name", DRAWS)
def test_replayed_draws_continue_the_sequence_of_keys(name):
    draw, seeds = DRAWS[name], tk.random.SeedGenerator(5)
    compiled = tk.function(draw)
    for number in range(6):
        key = ops.convert_to_tensor(np.array([5, number], "uint32"))
        y = draw(seeds)
        np.testing.assert_allclose(y, compiled(key), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(seeds.state, [5, number + 1])


def test_draws_of_the_global_generator():
    draws = []
    for _ in range(2):
        tk.random.set_random_seed(3)
        draws.append([np.asarray(tk.random.normal((3,))) for _ in range(5)])
    np.testing.assert_array_equal(*draws)
    assert len({y.tobytes() for y in draws[0]}) == 5


def test_calls_without_a_draw_change_no_state():
    seeds = tk.random.SeedGenerator(5)
    for _ in range(4):
        tk.random.dropout(X, 0, seed=seeds)
        with pytest.raises(ValueError, match="dropout"):
            tk.random.dropout(X, 1.5, seed=seeds)
    np.testing.assert_array_equal(seeds.state, [5, 0])


def test_gradients_of_replayed_draws():
    x, seeds = ops.ones(50), tk.random.SeedGenerator(5)
    for _ in range(4):
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = tk.random.dropout(x, 0.5, seed=seeds)
        np.testing.assert_array_equal(tape.gradient(y, x), y)


HOT = {
    "take": lambda x, i: ops.take(x, i, axis=1),
    "take_along_axis": lambda x, i: ops.take_along_axis(x, i[None], 1),
    "pad": lambda x, i: ops.pad(x, 1, constant_values=-0.0),
    "argsort": lambda x, i: ops.argsort(x, axis=0),
    "searchsorted": lambda x, i: ops.searchsorted(ops.sort(x[0]), x[1]),
    "top_k": lambda x, i: ops.top_k(x, 2)[0],
    "segment_sum": lambda x, i: ops.segment_sum(x, ops.array([1, 0, 1]), 2),
    "scatter_update": lambda x, i: ops.scatter_update(x, [[1], [1]], x[:2]),
    "last elements": lambda x, i: ops.take(ops.max(x), [0, 0]),
}


@pytest.mark.parametrize("name", HOT)
def test_many_calls_keep_the_bits(name):
    x, indices = value(3, 4), ops.convert_to_tensor(np.array([2, -1, 0], "int32"))
    first = HOT[name](x, indices)
    for _ in range(300):
        y = HOT[name](x, indices)
    assert y.spec == first.spec
    assert np.asarray(y).tobytes() == np.asarray(first).tobytes()
    strided = ops.transpose(value(4, 3))  # the same shape, with other strides
    copy = ops.convert_to_tensor(np.ascontiguousarray(strided))
    expected = HOT[name](copy, indices)
    for other in (strided, copy, strided, strided):
        np.testing.assert_array_equal(HOT[name](other, indices), expected)


def test_many_calls_with_changing_strides():
    wide = RNG.normal(size=(3, 80)).astype("float32")
    steps = [ops.convert_to_tensor(wide)[:, : 4 * step : step] for step in range(1, 20)]
    for _ in range(20):
        for x in steps:
            expected = np.sort(np.asarray(x), axis=1)
            np.testing.assert_array_equal(ops.sort(x, axis=1), expected)


def test_images_with_other_strides():
    transposed = ops.transpose(value(2, 6, 5, 4), (0, 2, 1, 3))
    copy = ops.convert_to_tensor(np.ascontiguousarray(transposed))
    for call in (
        lambda x: ops.conv(x, KERNEL),
        lambda x: ops.conv(x, KERNEL, padding="same"),
        lambda x: ops.max_pool(x, 2),
        lambda x: ops.average_pool(x, 2, padding="same"),
    ):
        expected = repeated(lambda call=call: call(copy))
        np.testing.assert_allclose(call(transposed), expected, rtol=1e-6)


def test_positions_of_maxima_for_a_tape():
    for _ in range(4):
        with tk.GradientTape() as tape:
            tape.watch(IMAGES)
            y = ops.max_pool(IMAGES, 2)
        assert float(ops.sum(tape.gradient(y, IMAGES))) == y.size


def test_errors_after_many_calls():
    x, indices = value(3), ops.convert_to_tensor(np.array([2, 1], "int32"))
    for _ in range(300):
        ops.take(x, indices)
    with pytest.raises(IndexError, match="index 3 is out of range"):
        ops.take(x, ops.convert_to_tensor(np.array([2, 3], "int32")))
    np.testing.assert_array_equal(ops.take(x, indices), np.asarray(x)[[2, 1]])


def test_draws_after_many_calls():
    seeds = tk.random.SeedGenerator(5)
    draws = [np.asarray(tk.random.uniform((3,), seed=seeds)) for _ in range(300)]
    again = tk.random.SeedGenerator(5)
    replays.clear()
    for y in draws:
        np.testing.assert_array_equal(tk.random.uniform((3,), seed=again), y)
