"""Tests of tensors: conversion, operators, indexing, printing, NumPy's protocols."""

import copy
import itertools
import operator
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import ops
from toolkit.core.tensor import Tensor, state
from toolkit.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    ShapeError,
    TraceError,
)

A = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
B = np.array([[2.0, 3.0, -1.5], [1.0, -2.0, 0.5]], np.float32)
M = np.array([[5, -7, 3], [2, 9, -4]], np.int32)
N = np.array([[2, 3, 1], [1, 2, 3]], np.int32)
P = np.array([True, False, True])


def tensor(x, dtype=None):
    return ops.convert_to_tensor(x, dtype)


# --- conversion -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, dtype, shape",
    [
        (1, "int32", ()),
        (2**40, "int64", ()),
        (1.5, "float32", ()),
        (True, "bool", ()),
        ([], "float32", (0,)),
        ([1, 2], "int32", (2,)),
        ([1, 2.5], "float32", (2,)),
        ([True, False], "bool", (2,)),
        ([True, 2], "int32", (2,)),
        ([[1.0], [2.0]], "float32", (2, 1)),
        ((2**40, 1), "int64", (2,)),
        (np.float64(1.5), "float32", ()),
        (np.array([1.5]), "float64", (1,)),
        (np.array([1], np.uint8), "uint8", (1,)),
        (np.array(1, np.int64), "int64", ()),
        ([np.array([1.0]), np.array([2.0])], "float64", (2, 1)),
        (range(3), "int64", (3,)),
    ],
)
def test_dtype_and_shape(value, dtype, shape):
    x = tensor(value)
    assert (x.dtype, x.shape) == (dtype, shape)


@pytest.mark.parametrize(
    "value, dtype",
    [
        ([-(2**31)], "int32"),
        (-(2**31), "int32"),
        ([2**31], "int64"),
        ([-(2**63)], "int64"),
        ([2**63], "uint64"),
        (np.array([1, 2], ">i4"), "int32"),
    ],
)
def test_integers_have_a_sufficient_dtype(value, dtype):
    result = tensor(value)
    assert (result.dtype, result.tolist()) == (dtype, np.array(value).tolist())


@pytest.mark.parametrize("value, dtype", [(300, "uint8"), ([-1, 2**63], None)])
def test_too_large_integers_are_refused(value, dtype):
    with pytest.raises(DTypeError, match="convert_to_tensor.*does not fit"):
        tensor(value, dtype)


def test_requested_dtype():
    assert tensor([1, 2], "float16").dtype == "float16"
    assert tensor(1.7, "int32").item() == 1
    assert tensor(np.array([300.0]), "bool").tolist() == [True]


def test_lists_of_tensors_are_stacked():
    x = tensor([tensor([1.0, 2.0]), [3, 4]])
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    "dtype, number, result",
    [
        ("float16", 2.0, "float16"),
        ("uint8", 2, "uint8"),
        ("uint8", 2.5, "float32"),
        ("int32", np.float16(2), "float16"),
        ("float32", [1, 2.0], "float32"),
        ("bool", True, "bool"),
        ("int32", 2**40, "int64"),
        ("uint8", -1, "int32"),
        ("uint8", 300, "int32"),
        ("float16", 1e6, "float32"),
    ],
)
def test_numbers_in_lists_adopt_the_tensor_dtype(dtype, number, result):
    ones = tensor(np.ones(np.shape(number)), dtype)
    assert tensor([ones, number]).dtype == result
    assert tensor([number, ones]).dtype == result


def test_a_tensor_is_not_converted_again():
    x = tensor(A)
    assert tensor(x) is x
    assert ops.copy(x) is x


@pytest.mark.parametrize("value", [["a", 1], [[1, 2], [3]], object(), None, {1: 2}])
def test_non_numeric_values_are_refused(value):
    with pytest.raises(DTypeError):
        tensor(value)


def test_sparse_and_ragged_are_refused():
    with pytest.raises(DTypeError, match="sparse"):
        ops.convert_to_tensor([1.0], sparse=True)


def test_tensor_is_a_copy_of_the_array():
    array = A.copy()
    x = tensor(array)
    array[:] = 0
    assert_close(x, A)


def test_torch_like_objects_are_converted():
    class Foreign:
        def detach(self):
            return self

        def cpu(self):
            return self

        def __array__(self, dtype=None, copy=None):
            return A

    assert_close(tensor(Foreign()), A)


# --- operators ------------------------------------------------------------------------

BINARY = [
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("x, y", [(abs(A), B), (A, 2), (3.5, abs(B)), (abs(A), B[0])])
def test_binary_operators(name, x, y):
    function = getattr(operator, name)
    if name == "pow" and not isinstance(x, float):
        x = np.abs(x)
    expected = function(x, y)
    operand = tensor(x) if isinstance(x, np.ndarray) else x
    right = tensor(y) if isinstance(y, np.ndarray) else y
    result = function(operand, right)
    assert isinstance(result, Tensor)
    assert_close(result, expected)
    # The operators of NumPy's arrays defer to tensors.
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        mixed = function(x, right)
        assert isinstance(mixed, Tensor)
        assert_close(mixed, expected)


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_bits_of_integers_and_logic_of_booleans(name):
    function = getattr(operator, name)
    assert function(tensor(M), tensor(N)).tolist() == function(M, N).tolist()
    assert function(tensor(P), ~tensor(P)).tolist() == function(P, ~P).tolist()
    assert function(tensor(P), True).dtype == "bool"


@pytest.mark.parametrize("name", ["lshift", "rshift"])
def test_shifts(name):
    function = getattr(operator, name)
    assert function(tensor(M), tensor(N)).tolist() == function(M, N).tolist()


@pytest.mark.parametrize("function", [operator.neg, abs, round])
def test_unary_operators(function):
    assert_close(function(tensor(A)), np.round(A) if function is round else function(A))


def test_invert():
    assert (~tensor(P)).tolist() == (~P).tolist()
    assert (~tensor(M)).tolist() == (~M).tolist()


def test_matmul_operator():
    assert_close(tensor(A) @ tensor(B.T), A @ B.T)
    assert_close(A @ tensor(B.T), A @ B.T)
    assert_close(tensor(A) @ B.T, A @ B.T)


def test_transposed():
    assert_close(tensor(A).T, A.T)


def test_comparison_with_other_objects():
    x = tensor(A)
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        x + None


def test_tensors_are_hashed_by_identity():
    x, y = tensor([1.0]), tensor([1.0])
    assert len({x, y, x}) == 2


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: tensor(A) + tensor([1.0, 2.0]), ShapeError, r"add.*\(2, 3\).*\(2,\)"),
        (lambda: tensor(A) @ tensor(B), ShapeError, r"matmul.*\(2, 3\)"),
        (lambda: tensor(A) & tensor(B), DTypeError, "bitwise_and.*float32"),
        (lambda: -tensor(P), DTypeError, "negative"),
        (lambda: tensor(P) - tensor(P), DTypeError, "subtract"),
    ],
)
def test_messages_name_the_operation_and_what_was_received(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- indexing -------------------------------------------------------------------------


def test_index_and_iterate():
    x = tensor(A)
    assert_close(x[0], A[0])
    assert_close(x[..., 1:], A[..., 1:])
    assert_close(x[:, None, ::-1], A[:, None, ::-1])
    assert_close(x[x > 0], A[A > 0])
    assert_close(x[[1, 0], [2, -1]], A[[1, 0], [2, -1]])
    assert [row.tolist() for row in x] == A.tolist()
    first, second = x
    assert first.tolist() == A[0].tolist()


@pytest.mark.parametrize("step", [None, 1, 2, 7, -1, -2, -7])
def test_slices_out_of_range(step):
    bounds = (None, -10, -6, -5, -1, 0, 1, 4, 5, 10)
    for n in (1, 5):
        x = np.arange(n, dtype="float32")
        for start, stop in itertools.product(bounds, bounds):
            actual = ops.convert_to_tensor(x)[start:stop:step]
            np.testing.assert_array_equal(actual, x[start:stop:step])


def test_index_by_tensors():
    x = tensor(A)
    assert_close(x[tensor(1)], A[1])
    assert_close(x[tensor(1), tensor([0, 2])], A[1, [0, 2]])
    assert_close(x[:, tensor([True, False, True])], A[:, [0, 2]])


def test_a_list_with_slices_is_a_tuple():
    x = tensor(A)
    assert_close(x[[slice(None), None, slice(1, None)]], A[:, None, 1:])
    assert_close(x[[..., 1]], A[..., 1])
    assert_close(x[[1, 0]], A[[1, 0]])


@pytest.mark.parametrize(
    "key, error",
    [
        (2, IndexError),
        (-3, IndexError),
        ((0, 3), IndexError),
        ((0, 0, 0), ShapeError),
        ((..., ...), ArgumentError),
        ("a", ArgumentError),
        (1.5, (ArgumentError, DTypeError)),
        (True, ArgumentError),
        (np.array([0, 5]), IndexError),
        (np.array([True, False, True]), IndexError),
        ((np.array([0, 1]), np.array([0, 1, 2])), ShapeError),
    ],
)
def test_bad_indices(key, error):
    with pytest.raises(error):
        tensor(A)[key]


def test_two_index_arrays_are_checked_one_by_one():
    with pytest.raises(IndexError, match="3"):
        tensor(A)[np.array([0]), np.array([3])]


def test_masks_cannot_be_traced():
    @toolkit.function
    def positive(x):
        return x[x > 0]

    with pytest.raises(TraceError, match="where"):
        positive(tensor(A))


def test_tensors_are_immutable():
    with pytest.raises(TypeError):
        tensor(A)[0] = 1.0


# --- numbers, text, protocols ---------------------------------------------------------


def test_to_python():
    x = tensor(2.5)
    assert (float(x), int(x), bool(x), x.item()) == (2.5, 2, True, 2.5)
    assert tensor(M).tolist() == M.tolist()
    assert [10, 20, 30][tensor(1)] == 20
    assert f"{tensor(0.126):.2f}" == "0.13"
    assert len(tensor(A)) == 2


@pytest.mark.parametrize("call", [len, iter, operator.index])
def test_float_scalar_refuses_unsupported_conversions(call):
    with pytest.raises(TypeError):
        call(tensor(1.0))


def test_truth_of_several_elements_is_refused():
    with pytest.raises(ValueError):
        bool(tensor(A))


def test_repr():
    assert repr(tensor([1, 2])) == "<Tensor shape=(2,), dtype=int32, value=\n[1 2]>"
    assert str(tensor([1, 2])) == "[1 2]"


def test_attributes():
    x = tensor(A)
    assert (x.ndim, x.size, x.nbytes, x.device) == (2, 6, 24, "cpu:0")
    assert (ops.ndim(x), ops.size(x), ops.shape(x)) == (2, 6, (2, 3))
    assert ops.dtype(x) == "float32" and ops.dtype(2) == "int32"
    assert ops.is_tensor(x) and not ops.is_tensor(A)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_a_tensor_without_axes_is_a_numpy_number(dtype):
    for value in (tensor([1, 2], dtype)[0], toolkit.Variable(1, dtype=dtype)):
        number = value.numpy()
        assert isinstance(number, np.generic) and {number: "a key"}[number]
        assert number.dtype.name == dtype
        assert isinstance(np.asarray(value), np.ndarray)
        assert isinstance(ops.convert_to_numpy(value), np.ndarray)


def test_numpy_functions_take_tensors():
    x = tensor(A)
    assert_close(np.exp(x), np.exp(A))
    assert_close(np.concatenate([x, x]), np.concatenate([A, A]))
    assert np.asarray(x, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(x, copy=True), x.numpy())


def test_convert_to_numpy_may_be_written_to():
    x = tensor(A)
    array = ops.convert_to_numpy(x)
    array[:] = 0
    assert_close(x, A)


def test_dlpack():
    x = tensor(A)
    assert_close(np.from_dlpack(x), A)


def test_copies_and_pickles():
    x = tensor(A)
    assert copy.deepcopy(x) is x
    unpickled = pickle.loads(pickle.dumps(x))
    assert unpickled.dtype == x.dtype
    assert_close(unpickled, A)


def test_device_scope():
    with toolkit.device("cpu:0"):
        assert tensor(1.0).device == "cpu:0"
    with pytest.raises(DeviceError, match="expected one of"):
        with toolkit.device("gpu:77"):
            pass


def test_device_scope_as_a_decorator_in_two_threads():
    first_entered, both_entered, first_left = (threading.Event() for _ in range(3))

    @toolkit.device("cpu:0")
    def scoped(signal, awaited):
        signal.set()
        return awaited.wait(5)

    def first():
        with toolkit.device("cpu:0"):
            scoped(first_entered, both_entered)
            after = state.device
        first_left.set()
        return after

    def second():
        return (
            first_entered.wait(5) and scoped(both_entered, first_left) and state.device
        )

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(first), pool.submit(second)]
        assert [future.result() for future in futures] == ["cpu:0", None]


def test_large_numbers_become_complex_without_a_warning():
    assert complex(tensor(1e6, "complex64").numpy()) == 1e6


def test_traced_tensors_have_no_value():
    texts = []

    @toolkit.function
    def f(x):
        texts.append(repr(x))
        return float(x)

    with pytest.raises(TraceError, match="no value inside"):
        f(tensor(1.0))
    assert texts == ["<Tensor shape=(), dtype=float32, traced>"]


def test_numpy_scalars_do_not_widen():
    assert (tensor(A) * np.float64(2.0)).dtype == "float32"
    assert (np.float64(2.0) * tensor(A)).dtype == "float32"
    assert (tensor(A, "float16") + np.float32(1.0)).dtype == "float32"


def test_operations_ignore_overflow_and_keep_numpy_warnings():
    with np.errstate(all="raise"):
        assert float(ops.exp(1000.0)) == np.inf
        with pytest.raises(FloatingPointError):
            np.exp(np.float32(1000.0))


def test_operation_during_another_operation(monkeypatch):
    """Simulate a signal handler that runs an operation."""

    def interrupted(x):
        return np.exp(ops.exp(tensor(1000.0)).numpy() * 0 + x)

    ops.expm1(1.0)  # the kernel is cached
    monkeypatch.setitem(toolkit.core.tensor._eager_kernels, "expm1", interrupted)
    assert np.isnan(float(ops.expm1(1.0)))


@pytest.mark.parametrize(
    ("number", "dtype", "stored"),
    [
        (1e6, "float16", np.inf),
        (-1e6, "float16", -np.inf),
        (65519.0, "float16", 65504.0),
        (1e39, "float32", np.inf),
        (1e39, "bfloat16", np.inf),
        (1e39, "float64", 1e39),
    ],
)
def test_overflowing_numbers_are_infinite(number, dtype, stored):
    """Check this without a NumPy warning, as in a compiled function."""
    assert float(ops.convert_to_tensor(number, dtype)) == stored
    zero = ops.zeros((), dtype)
    assert float(zero + number) == stored
