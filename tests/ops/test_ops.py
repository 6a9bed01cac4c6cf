"""Test every row of the table of samples in every mode."""

import numpy as np
import pytest

import toolkit
import toolkit.random
from tests.helpers import assert_close, check_grads
from tests.ops.samples import SAMPLES
from tests.ops.table import is_float
from toolkit import config, dtypes, ops, tree
from toolkit.backends.registry import get_backend
from toolkit.core.tensor import Tensor, state
from toolkit.ir import PRIMITIVES, Kind
from toolkit.ops.symbolic import KerasTensor

# Primitives that intentionally have no gradient: the results are counts, booleans, or
# piecewise constant.
NON_DIFFERENTIABLE = {
    *("bitcast", "reinterpret"),
    *("sign", "floor", "ceil", "round", "trunc", "floor_divide", "gcd"),
    "stop_gradient",
    *("isnan", "isinf", "isfinite", "equal", "not_equal", "less", "less_equal"),
    *("logical_not", "logical_and", "logical_or", "logical_xor", "any", "all"),
    *("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("left_shift", "right_shift", "argmax", "argmin", "argsort", "searchsorted"),
    *("random_uniform", "matmul_integer", "conv_integer", "quantize"),
}
# Functions of functions and of properties of a tensor have separate tests.
NOT_IN_TABLE = {
    *("associative_scan", "cond", "custom_gradient", "fori_loop", "map", "scan"),
    *("switch", "vectorized_map", "while_loop", "dtype", "is_tensor"),
    *("eig", "polar", "view_as_complex", "view_as_real"),
}


def cast(inputs, dtype):
    """Return the inputs with float arrays in another dtype."""
    numpy_dtype = dtypes.numpy_dtype(dtype)
    return tree.map_structure(
        lambda x: x.astype(numpy_dtype) if is_float(x) else x, inputs
    )


def to_tensors(inputs, make=ops.convert_to_tensor):
    """Return the inputs with arrays as Tensors; numbers and strings are unchanged."""
    return tree.map_structure(
        lambda x: make(x) if isinstance(x, np.ndarray) else x, inputs
    )


def strided(x):
    """Return a Tensor of the same values whose elements are not contiguous."""
    if x.ndim == 0:
        return ops.convert_to_tensor(x)
    if x.ndim == 1:
        return ops.flip(ops.convert_to_tensor(np.ascontiguousarray(x[::-1])))
    return ops.transpose(ops.convert_to_tensor(np.ascontiguousarray(x.T)))


def contents(tensors):
    """Return the bytes of each Tensor."""
    leaves = tree.flatten(tensors)
    return [x.numpy().tobytes() for x in leaves if isinstance(x, Tensor)]


def expected_dtypes(row, outputs, dtype):
    """Return the expected dtype of each output."""
    expected = (
        row.dtype if isinstance(row.dtype, tuple) else (row.dtype,) * len(outputs)
    )
    for name, output in zip(expected, outputs, strict=True):
        kind = np.asarray(output).dtype.kind
        if name not in (None, "float"):
            yield name
        elif kind == "b":
            yield "bool"
        else:
            yield "int32" if kind in "iu" else dtype


def check_values(row, dtype, make=ops.convert_to_tensor):
    """Compare the result with NumPy in float64 for the same, rounded inputs."""
    inputs = cast(row.inputs, dtype)
    tensors = to_tensors(inputs, make)
    before = contents(tensors)
    results = tree.flatten(row.call(*tensors))
    assert contents(tensors) == before, "an input was changed"

    widened = tree.map_structure(
        lambda x: x.astype(np.float64) if getattr(x, "dtype", "") == dtype else x,
        inputs,
    )
    expected = row.expected(widened)
    if row.dtype == "python":
        assert tuple(results) == tuple(tree.flatten(expected))
        return
    expected = (
        [expected] if isinstance(expected, np.ndarray) else tree.flatten(expected)
    )
    assert len(results) == len(expected)
    names = expected_dtypes(row, expected, dtype)
    for y, reference, name in zip(results, expected, names, strict=True):
        assert dtypes.standardize(y.dtype) == name
        assert_close(y, reference, factor=row.tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.cases("row", SAMPLES)
def test_values(row, dtype):
    if dtype == "float64" and not row.has_floats:
        pytest.skip("there are no floats among the inputs")
    check_values(row, dtype)


STRIDED = [row for row in SAMPLES if any(np.ndim(x) for x in tree.flatten(row.inputs))]


@pytest.mark.cases("row", STRIDED)
def test_values_of_strided_inputs(row):
    check_values(row, "float64", strided)


WITH_HALF_PRECISION = [row for row in SAMPLES if row.half and row.has_floats]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.cases("row", WITH_HALF_PRECISION)
def test_values_in_half_precision(row, dtype):
    check_values(row, dtype)


def is_differentiable(row):
    """Return whether the inputs and outputs are floats."""
    if not (row.order and row.has_floats and row.size):
        return False
    outputs = tree.flatten(row.expected(row.inputs))
    return any(np.asarray(y).dtype.kind == "f" for y in outputs)


DIFFERENTIABLE = [row for row in SAMPLES if is_differentiable(row)]


def check_row_grads(row, order):
    leaves = tree.flatten(row.inputs)
    indices = [i for i, x in enumerate(leaves) if is_float(x)]

    def f(*xs):
        arguments = [
            ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x for x in leaves
        ]
        for i, x in zip(indices, xs, strict=True):
            arguments[i] = x
        return row.call(*tree.pack_sequence_as(row.inputs, arguments))

    check_grads(f, [leaves[i] for i in indices], order)


@pytest.mark.cases("row", DIFFERENTIABLE)
def test_gradients(row):
    check_row_grads(row, 1)


TWICE_DIFFERENTIABLE = [row for row in DIFFERENTIABLE if row.order > 1]


@pytest.mark.slow
@pytest.mark.cases("row", TWICE_DIFFERENTIABLE)
def test_second_derivatives(row):
    check_row_grads(row, 2)


TRACED = [row for row in SAMPLES if row.traced]


def traced_call(row, tensors):
    """Return the row's call as a traced function, and its tensors."""
    leaves = tree.flatten(tensors)
    indices = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

    @toolkit.function
    def function(*xs):
        arguments = list(leaves)
        for i, x in zip(indices, xs, strict=True):
            arguments[i] = x
        return row.call(*tree.pack_sequence_as(tensors, arguments))

    return function, [leaves[i] for i in indices]


@pytest.mark.cases("row", TRACED)
def test_traced_equals_eager(row):
    inputs = cast(row.inputs, "float32")
    tensors = to_tensors(inputs)
    call, arguments = traced_call(row, tensors)
    results = tree.flatten(call(*arguments))
    expected = tree.flatten(row.call(*tensors))
    assert len(results) == len(expected)
    for y, eager in zip(results, expected, strict=True):
        assert (y.shape, y.dtype) == (eager.shape, eager.dtype)
        assert_close(y, eager)

    # The same program, with inputs whose elements are not contiguous.
    second_call = call(*traced_call(row, to_tensors(inputs, strided))[1])
    for y, eager in zip(tree.flatten(second_call), expected, strict=True):
        assert_close(y, eager)


@pytest.mark.cases("row", TRACED)
def test_symbols_infer_shape_and_dtype(row):
    tensors = to_tensors(cast(row.inputs, "float32"))
    if not any(isinstance(x, Tensor) for x in tree.flatten(tensors)):
        pytest.skip("there is no tensor among the inputs")
    symbols = tree.map_structure(
        lambda x: KerasTensor(x.shape, x.dtype) if isinstance(x, Tensor) else x, tensors
    )
    results = tree.flatten(row.call(*symbols))
    expected = tree.flatten(row.call(*tensors))
    assert all(isinstance(y, KerasTensor) for y in results)
    assert [(y.shape, y.dtype) for y in results] == [
        (y.shape, y.dtype) for y in expected
    ]


@pytest.fixture
def reference_backend():
    before = config.backend()
    config.set_backend("reference")
    yield
    config.set_backend(before)


@pytest.mark.cases("row", SAMPLES)
def test_reference_backend(row, reference_backend):
    check_values(row, "float32")


# --- completeness ---------------------------------------------------------------------


class Recorder:
    """A tape that records which primitives are applied."""

    def __init__(self):
        self.names = set()

    def record(self, op, inputs, attrs, outputs):
        self.names.add(op.name)

    def __enter__(self):
        state.tapes = (*state.tapes, self)
        return self

    def __exit__(self, *exception):
        state.tapes = tuple(tape for tape in state.tapes if tape is not self)


def public_names(module=ops):
    return {
        name
        for name in dir(module)
        if not name.startswith("_")
        and callable(getattr(module, name))
        and getattr(getattr(module, name), "__module__", "").startswith("toolkit.ops.")
    }


def test_every_public_op_has_a_sample():
    names = public_names() | {f"image.{name}" for name in public_names(ops.image)}
    assert names - {row.name for row in SAMPLES} - NOT_IN_TABLE == set()


def test_every_primitive_is_called():
    with Recorder() as recorder:
        for row in SAMPLES:
            row.call(*to_tensors(cast(row.inputs, "float32")))
        for row in DIFFERENTIABLE:
            if PRIMITIVES.keys() - recorder.names:
                check_row_grads(row, min(row.order, 2))
    control = {name for name, p in PRIMITIVES.items() if p.kind is Kind.CONTROL}
    tested_elsewhere = {
        "random_uniform",
        "as_complex",
        "as_real",
        "conjugate",
        "eig",
    }  # in test_complex
    tested_elsewhere |= {"batch_norm", "batch_norm_grad", "batch_statistics"}  # test_nn
    tested_elsewhere |= {"matmul_int4"}  # backends/jit/test_int4
    tested_elsewhere |= {"conv_integer", "quantize"}  # layers/test_static_int8
    tested_elsewhere |= {"reread"}  # test_assigned
    tested_elsewhere |= {"exchange_rows"}  # distribution/test_embeddings
    tested_elsewhere |= {
        "gather_in_shard",
        "add_in_shard",
        "set_in_shard",
    }  # compiler/sharding/test_tables
    tested_elsewhere |= {"leaf_terms", "sum_leaves"}  # distribution/test_accumulation
    tested_elsewhere |= {"first_maximum", "first_minimum"}  # compat/test_values
    tested_elsewhere |= {"lstm", "gru", "rnn"}  # control_flow/test_recurrent
    tested_elsewhere |= {
        "batch_norm_of",
        "batch_norm_grad_of",
        "attention_grad_of",
    }  # cupy
    assert PRIMITIVES.keys() - recorder.names - control - tested_elsewhere == set()


def test_every_primitive_has_a_gradient_or_an_exception():
    no_gradient = {
        name
        for name, p in PRIMITIVES.items()
        if p.vjp is None and p.body is None and p.kind is not Kind.CONTROL
    }
    assert no_gradient == NON_DIFFERENTIABLE


def test_every_primitive_has_a_reference_kernel():
    reference = get_backend("reference")
    no_reference = {
        name
        for name, p in PRIMITIVES.items()
        if p.body is None
        and p.kind is not Kind.CONTROL
        and not reference.kernels.supports(name)
    }
    assert no_reference == set()


def test_every_kernel_has_a_primitive():
    for name in ("numpy", "reference"):
        assert set(get_backend(name).kernels) <= set(PRIMITIVES)
