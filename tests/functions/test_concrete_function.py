"""Test one trace of a function, called directly: its inputs, writes and memory."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close, is_free
from toolkit import ops
from toolkit.core.variable import Variable
from toolkit.errors import ShapeError
from toolkit.functions import concrete_function as concrete

X = np.array([1.0, 2.0, 3.0], "float32")


def traced(function, *arguments):
    return toolkit.function(function).get_concrete_function(*arguments)


def test_call_takes_the_shapes_and_types_of_the_trace():
    v = Variable(2.0)
    call = traced(lambda x, scale: x * scale * v, X, 3.0)
    assert_close(call(X, 3.0), X * 6)
    assert_close(call(ops.convert_to_tensor(X), "left aside"), X * 6)
    with pytest.raises(ShapeError, match=r"expects .*float32\[3\].*received .*\[2\]"):
        call(X[:2], 3.0)
    with pytest.raises(ShapeError, match="received"):
        call(X.astype("float64"), 3.0)
    with pytest.raises(ShapeError, match="received"):
        call(X, X)


def test_result_has_its_structure_and_its_constants():
    call = traced(lambda x: {"a": (x + 1.0, "text"), "b": [None, 3, x * 2.0]}, X)
    outputs = call(X)
    assert_close(outputs["a"][0], X + 1)
    assert_close(outputs["b"][2], X * 2)
    assert (outputs["a"][1], outputs["b"][:2]) == ("text", [None, 3])
    assert call.num_outputs == 2
    # no tensors of the trace
    assert call.static_leaves == [None, "text", None, 3, None]


def test_constants_are_read_or_returned():
    array = ops.convert_to_tensor(np.arange(3, dtype="float32"))
    call = traced(lambda x: (x * array, ops.convert_to_tensor([7.0, 8.0])), X)
    values = sorted(c.constant.size for c in call.constants)
    assert values[-1] == 3 and 2 in values
    with toolkit.GradientTape() as tape:
        assert not call.has_watched_constant()
        tape.watch(call.constants[0])
        assert call.has_watched_constant()


# --- Variables ------------------------------------------------------------------------


def test_written_variables_are_listed():
    read, read_and_written, written = (Variable(X) for _ in range(3))

    def function(x):
        read_and_written.assign_add(x * read)
        written.assign(x + 1.0)
        return x * 2.0

    call = traced(function, X)
    assert set(map(id, call.variables)) == {id(read), id(read_and_written)}
    assert list(map(id, call.written_variables)) == [id(read_and_written), id(written)]
    for _ in range(2):
        assert_close(call(X), X * 2)
    assert_close(read_and_written, X + 2 * X * X)
    assert_close(written, X + 1)


def test_machine_code_updates_variables_in_place():
    v = Variable(X)
    call = traced(lambda x: v.assign_add(x * 2.0), X)
    call(X)
    if not call.program.in_place:
        pytest.skip("no machine code")
    array = v.exclusive_buffer()
    call(X)
    assert v.exclusive_buffer() is array
    assert_close(v, X * 5)


def test_compiler_receives_the_input_that_each_value_replaces(monkeypatch):
    inputs_of_compiler, compiled = [], concrete.compile_graph

    def spy(graph, backend, generate, updates, name, **options):
        inputs_of_compiler.append(list(updates))
        return compiled(graph, backend, generate, updates, name, **options)

    monkeypatch.setattr(concrete, "compile_graph", spy)
    a, b, c, d = (Variable(X) for _ in range(4))

    def function(x):
        y = a * b * c * x
        c.assign(y)
        a.assign(y + 1.0)
        d.assign(x)
        return y, y

    call = traced(function, X)
    assert inputs_of_compiler == [
        [(2, 3), (3, 1), (4, None)]
    ]  # outputs, and inputs: x, a, b, c
    assert [v is w for v, w in zip(call.variables, (a, b, c), strict=True)] == [
        True
    ] * 3


@pytest.mark.parametrize("generate", [True, False])
def test_returned_value_is_not_overwritten(generate):
    v = Variable(X)

    def function(x):
        v.assign_add(x)
        return v.value * 1.0

    call = toolkit.function(function, jit_compile=generate).get_concrete_function(X)
    results = []
    for i in range(4):
        results.append((v.numpy(), X * (i + 1)))
        call(X)
    for array, expected in results:
        assert_close(array, expected)


def test_call_marks_the_values_that_it_reads():
    v = Variable(X)
    v.exclusive_buffer()
    traced(lambda x: x * v, X)(X)
    assert v._shared


def test_no_lock_is_held_during_the_computation():
    v = Variable(X)
    call = traced(lambda x: x * v, X)
    assert not call.is_asynchronous
    executable, lock_states = call.executable, []

    def watched(run, *arguments):
        lock_states.append(is_free(v))
        return run(*arguments)

    call.executable = Mock(
        wraps=partial(watched, executable), update=partial(watched, executable.update)
    )
    assert_close(call(X), X * X)
    call.is_asynchronous = (
        True  # an accelerator computes later, and reads the buffers at that time
    )
    assert_close(call(X), X * X)
    assert lock_states == [True, False]


def test_call_inside_a_trace_becomes_a_part_of_it():
    v = Variable(X)

    def function(x):
        v.assign_add(x)
        return x * v, "text"

    call = traced(function, X)
    outer = toolkit.function(lambda x: call(x + 1.0))
    y, text = outer(X)
    assert text == "text"
    assert_close(v, 2 * X + 1)
    assert_close(y, (X + 1) * (2 * X + 1))


def test_scope_keeps_the_writes_of_a_call():
    v = Variable(X)

    def function(x):
        v.assign_add(x)
        return x * v

    call = traced(function, X)
    with toolkit.StatelessScope([(v, X * 10)]) as scope:
        assert_close(call(X), X * X * 11)
    assert_close(scope.get_current_value(v), X * 11)
    assert_close(v, X)


# --- gradients ------------------------------------------------------------------------


def test_tape_records_a_call_as_one_node():
    v, frozen = Variable(X), Variable(X, trainable=False)
    call = traced(lambda x: (x * v * frozen, ops.cast(x, "int32")), X)
    with toolkit.GradientTape(persistent=True) as tape:
        x = ops.convert_to_tensor(X)
        tape.watch(x)
        y, _ = call(x)
    assert len(tape._nodes) == 1
    for _ in range(2):
        gradients = tape.gradient(y, [x, v, frozen])
        assert_close(gradients[0], X * X)
        assert_close(gradients[1], X * X)
        assert gradients[2] is None
    assert call._gradient.trace_count == 1


def test_gradient_function_is_compiled_once():
    call = traced(lambda x: x * x, X)
    functions = []
    for _ in range(2):
        with toolkit.GradientTape() as tape:
            x = ops.convert_to_tensor(X)
            tape.watch(x)
            y = call(x)
        assert_close(tape.gradient(y, x), 2 * X)
        functions.append(call._gradient)
    assert functions[0] is functions[1]


@pytest.mark.parametrize("watched", ["x", "v", None])
def test_only_watched_values_are_recorded(watched):
    v, x = Variable(X, trainable=watched == "v"), ops.convert_to_tensor(X)
    call = traced(lambda x: x * v, X)
    with toolkit.GradientTape() as tape:
        if watched == "x":
            tape.watch(x)
        y = call(x)
    assert len(tape._nodes) == (watched is not None)
    if watched:
        assert_close(tape.gradient(y, x if watched == "x" else v), X)


def test_one_tensor_may_be_several_inputs():
    call = traced(
        lambda a, b, n: a * a * b + ops.cast(n, "float32"), X, X, np.arange(3)
    )
    x = ops.convert_to_tensor(X)
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = call(x, x, np.arange(3))
    assert_close(tape.gradient(y, x), 3 * X * X)


# --- accelerators ---------------------------------------------------------------------


class Elsewhere(np.ndarray):
    """A stand-in for an array of an accelerator."""


class Backend:
    def __init__(self, is_accelerator):
        self.is_accelerator = is_accelerator


@pytest.mark.parametrize(
    "is_accelerator, where, settled",
    [
        (True, [Elsewhere, Elsewhere], True),
        (True, [Elsewhere, np.ndarray], False),
        (True, [np.ndarray, np.ndarray], False),
        (False, [np.ndarray, np.ndarray], True),
        (False, [Elsewhere, np.ndarray], False),
        (False, [Elsewhere, Elsewhere], False),
    ],
)
def test_device_is_determined_by_the_type_of_values(
    monkeypatch, is_accelerator, where, settled
):
    variables = [Variable(X), Variable(X)]

    def function(x):
        variables[1].assign(x)
        return x * variables[0]

    call = traced(function, X)
    for v, kind in zip(variables, where, strict=True):
        v._tensor._array = v._tensor._array.view(kind)
    monkeypatch.setattr(concrete, "backend", lambda: Backend(is_accelerator))
    monkeypatch.setattr(concrete, "device_memories", [object()])
    assert call._is_on_device() is settled
    monkeypatch.setattr(concrete, "device_memories", [object(), object()])
    assert call._is_on_device() is False  # the type does not identify the accelerator


@pytest.mark.parametrize("count, settles", [(0, 0), (1, 0), (2, 2)])
def test_values_are_materialized_if_their_device_is_unknown(
    monkeypatch, count, settles
):
    v, w, settled = Variable(X), Variable(X), []

    def function(x):
        w.assign(x)
        return x * v

    call = traced(function, X)
    monkeypatch.setattr(Variable, "settle", lambda v: settled.append(v))
    monkeypatch.setattr(concrete, "device_memories", [object()] * count)
    assert_close(call(X), X * X)
    assert len(settled) == settles
