"""Test `function`: signatures, Variables, side effects, errors, gradients, threads."""

from __future__ import annotations

import copy
import gc
import threading
import time
import warnings
import weakref
from functools import partial, wraps
from unittest.mock import Mock

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.core.tensor import state
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    ShapeError,
    TraceError,
    VariableCreationError,
)
from toolkit.functions.function import MAX_PROGRAMS


def tensor(*values: float) -> toolkit.Tensor:
    return ops.convert_to_tensor(list(values))


def test_python_runs_once_per_signature():
    calls = []

    @toolkit.function
    def double(x):
        calls.append(x.shape)
        return x * 2.0

    assert double(tensor(1.0)).tolist() == [2.0]
    assert double(tensor(3.0)).tolist() == [6.0]
    assert double(tensor(1.0, 2.0)).tolist() == [2.0, 4.0]
    assert calls == [(1,), (2,)]
    assert double.trace_count == 2


def test_python_values_are_part_of_the_signature():
    power = toolkit.function(lambda x, n: x**n)
    assert power(tensor(3.0), 2).tolist() == [9.0]
    assert power(tensor(3.0), 3).tolist() == [27.0]
    assert power.trace_count == 2


def test_reduce_retracing_makes_numbers_tensors():
    scale = toolkit.function(lambda x, n: x * n, reduce_retracing=True)
    assert [scale(tensor(3.0), n).tolist() for n in (2, 3, 4)] == [[6.0], [9.0], [12.0]]
    assert scale.trace_count == 1


def test_structures_of_arguments_and_results():
    @toolkit.function
    def swap(pair, *, extra):
        a, b = pair
        return {"b": b + extra["k"], "a": a, "static": "text", "none": None}

    swapped = swap((tensor(1.0), tensor(2.0)), extra={"k": np.float32(1)})
    assert swapped["b"].tolist() == [3.0]
    assert swapped["a"].tolist() == [1.0]
    assert (swapped["static"], swapped["none"]) == ("text", None)


def test_input_signature():
    spec = toolkit.KerasTensor((None, 2), "float32")
    total = toolkit.function(lambda x: ops.sum(x), input_signature=[spec])
    assert float(total(ops.ones((3, 2)))) == 6.0
    with pytest.raises(ShapeError, match=r"expected.*\[None, 2\].*received.*\[3, 4\]"):
        total(ops.ones((3, 4)))


TEXTS = {
    "list": ["b", "a"],
    "array": np.array(["b", "a"]),
    "objects": np.array(["b", "a"], object),
    "bytes": np.array([b"b", b"a"]),
    "tensor": ops.convert_to_tensor(["b", "a"]),
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("spec", [toolkit.KerasTensor, toolkit.data.TensorSpec])
def test_input_signature_of_strings(kind, spec):
    lookup = toolkit.layers.StringLookup(vocabulary=["a", "b"])
    signature = [spec((None,), "string"), spec((2,), "float32")]
    function = toolkit.function(
        lambda words, x: ops.cast(lookup(words), "float32") * x,
        input_signature=signature,
    )
    assert function(TEXTS[kind], ops.ones((2,))).tolist() == [2.0, 1.0]
    assert function(TEXTS[kind], [2.0, 3.0]).tolist() == [4.0, 3.0]
    with pytest.raises(ShapeError, match=r"\(string\[None\], float32\[2\]\).*received"):
        function(ops.ones((2,)), ops.ones((2,)))


@pytest.mark.parametrize(
    "signature", [["float32"], "float32", [(2, 3)], [None], [np.float32], [3]]
)
def test_input_signature_without_specs_is_refused(signature):
    with pytest.raises(
        ArgumentTypeError, match="a list of specs.*TensorSpec.*received"
    ):
        toolkit.function(lambda x: x, input_signature=signature)


def test_variables_are_read_and_assigned():
    v = toolkit.Variable(1.0)

    @toolkit.function
    def step(x):
        v.assign_add(x)
        return v * 10.0

    assert float(step(ops.convert_to_tensor(2.0))) == 30.0
    assert float(step(ops.convert_to_tensor(2.0))) == 50.0
    assert float(v) == 5.0


def test_returned_values_do_not_change_later():
    v = toolkit.Variable(np.zeros(4, "float32"))
    step = toolkit.function(lambda: v.assign_add(ops.ones((4,))))
    results = []
    for _ in range(5):
        step()
        results.append((v.numpy(), v.value, ops.reshape(v, (2, 2))))
    for i, views in enumerate(results, 1):
        for view in views:
            assert np.asarray(view).ravel().tolist() == [i] * 4


def test_unreferenced_buffers_are_reused():
    v = toolkit.Variable(np.zeros(4, "float32"))
    step = toolkit.function(lambda: v.assign_add(ops.ones((4,))))
    buffers = set()
    for _ in range(6):
        step()
        buffers.add(v.exclusive_buffer().ctypes.data)
    assert len(buffers) <= 3


def test_variables_are_created_only_on_the_first_call():
    variables = []

    @toolkit.function
    def create_on_first_call(x):
        if not variables:
            variables.append(toolkit.Variable([3.0]))
        return x * variables[0]

    assert create_on_first_call(tensor(2.0)).tolist() == [6.0]
    assert variables[0].numpy().tolist() == [3.0]

    @toolkit.function
    def always(x):
        return x * toolkit.Variable(2.0)

    for _ in range(2):
        with pytest.raises(VariableCreationError, match="always: the function creat"):
            always(tensor(1.0))


def test_failing_trace_changes_no_variable():
    v = toolkit.Variable(1.0)

    @toolkit.function
    def broken(x):
        v.assign(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken(ops.convert_to_tensor(5.0))
    assert float(v) == 1.0
    assert float(ops.convert_to_tensor(1.0) + v) == 2.0  # no trace is left open


def test_failing_step_changes_no_variable():
    v = toolkit.Variable(1.0)

    @toolkit.function
    def step(table, index):
        v.assign_add(1.0)
        return ops.take(table, index)

    table = tensor(1.0, 2.0)
    assert float(step(table, ops.convert_to_tensor(1))) == 2.0
    with pytest.raises(IndexError):
        step(table, ops.convert_to_tensor(7))
    assert float(v) == 2.0


def test_leaked_tensor_of_a_trace_is_named_in_the_error():
    leaked = []

    @toolkit.function
    def leak(x):
        leaked.append(x * 2.0)
        return x

    leak(tensor(1.0))
    with pytest.raises(TraceError, match="belongs to a trace that has ended"):
        leaked[0] + 1.0
    with pytest.raises(TraceError, match="has no value"):
        leaked[0].numpy()
    other = toolkit.function(lambda x: x + leaked[0])
    with pytest.raises(TraceError, match="trace that has ended"):
        other(tensor(1.0))
    for arguments in (leaked, [[leaked[0]]]):
        with pytest.raises(TraceError, match="leak: .* trace that has ended"):
            leak(*arguments)


def test_python_control_flow_on_values_is_explained():
    branch = toolkit.function(lambda x: x if x > 0 else -x)
    with pytest.raises(TraceError, match="cond"):
        branch(ops.convert_to_tensor(1.0))


def test_gradient_through_a_call_and_inside_one():
    v = toolkit.Variable(3.0)
    cube = toolkit.function(lambda x: v * x**3)
    x = ops.convert_to_tensor(2.0)
    with toolkit.GradientTape() as outer:
        outer.watch(x)
        with toolkit.GradientTape() as inner:
            inner.watch(x)
            y = cube(x)
        dx, dv = inner.gradient(y, [x, v])
    assert (float(dx), float(dv)) == (36.0, 8.0)
    assert float(outer.gradient(dx, x)) == 36.0

    @toolkit.function
    def slope(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = x**3
        return tape.gradient(y, x)

    assert float(slope(x)) == 12.0


def test_methods_have_separate_traces():
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @toolkit.function
        def scale(self, x):
            return x * self.factor

    two, three = Scaler(2.0), Scaler(3.0)
    assert [float(s.scale(tensor(1.0))[0]) for s in (two, three, two)] == [2, 3, 2]


def test_nested_functions_become_one_graph():
    inner = toolkit.function(lambda x: x * 2.0)
    outer = toolkit.function(lambda x: inner(x) + 1.0)
    assert outer(tensor(1.0)).tolist() == [3.0]
    assert inner.trace_count == 0


def test_retracing_is_reported_once():
    identity = toolkit.function(lambda x, n: x * n)
    with pytest.warns(UserWarning, match=r"<lambda> is traced.*from.*'7'.*to.*'8'"):
        for n in range(3, 9):
            identity(tensor(1.0), n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        identity(tensor(1.0), 100)
        ragged = toolkit.function(lambda x: x * 2.0)
        for n in range(1, 12):  # only the leading extent differs
            ragged(ops.ones((n, 3)))


def test_constants_of_the_trace_are_captured():
    weights = tensor(1.0, 2.0)
    assert toolkit.function(lambda x: x + weights)(tensor(1.0, 1.0)).tolist() == [2, 3]


def test_many_threads_call_one_function():
    v = toolkit.Variable(0.0)
    heavy = toolkit.function(lambda x: ops.sum(ops.tanh(x) * x))
    count = toolkit.function(lambda: v.assign_add(1.0))
    inputs = [ops.full((50,), float(i)) for i in range(4)]
    expected = [float(heavy(x)) for x in inputs]
    errors = []

    def work():
        for _ in range(100):
            count()
            for x, expected_value in zip(inputs, expected, strict=True):
                if float(heavy(x)) != expected_value:
                    errors.append(expected_value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert float(v) == 400.0


def test_inspect_prints_passes_schedule_and_arena():
    step = toolkit.function(lambda x: ops.sum(ops.exp(x) + ops.exp(x)))
    report = step.inspect(ops.ones((100,)))
    text = str(report)
    assert all(word in text for word in ("share", "schedule", "arena", "peak"))
    assert dict(report.passes)["share"].nodes != dict(report.passes)["trace"].nodes
    assert report.live_bytes <= report.peak_bytes <= 1.1 * report.live_bytes + 64


def test_stateless_scope_keeps_writes_inside():
    v = toolkit.Variable(1.0)
    step = toolkit.function(lambda: v.assign_add(1.0))
    with toolkit.StatelessScope([(v, 10.0)]) as scope:
        assert float(step()) == 11.0
    assert float(v) == 1.0
    assert float(scope.get_current_value(v)) == 11.0


def test_variables_are_captured_in_their_own_dtype():
    v = toolkit.Variable([1.001])

    @toolkit.function
    def read_both(x):
        state.autocast = "float16"
        try:
            low = v * x
        finally:
            state.autocast = None
        return low, v.read() * 2.0

    low, full = read_both(ops.ones((1,), "float16"))
    assert (low.dtype, full.dtype) == ("float16", "float32")
    assert full.numpy() == np.float32(1.001) * 2


def test_traces_keep_no_object_alive():
    class Doubler:
        @toolkit.function
        def double(self, x):
            return x * 2.0

    x, owner = ops.ones((10,)), Doubler()
    with toolkit.GradientTape(persistent=True) as tape:
        owner.double(x)
    references = [weakref.ref(thing) for thing in (x, owner, tape)]
    used = toolkit.function(lambda x: x + 1.0)
    used(x)
    del x, owner, tape
    gc.collect()
    assert [thing() for thing in references] == [None, None, None]


def test_copies_of_an_instance_have_separate_traces():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @toolkit.function
        def __call__(self, x):
            return x * self.factor

    first = Scale(2.0)
    assert first(tensor(1.0)).tolist() == [2.0]
    for second in (copy.copy(first), copy.deepcopy(first)):
        second.factor = 3.0
        assert second(tensor(1.0)).tolist() == [3.0]
        assert first(tensor(1.0)).tolist() == [2.0]
    assert Scale(4.0)(tensor(1.0)).tolist() == [4.0]


def test_class_with_slots_needs_a_slot_for_traces():
    class Slotted:
        __slots__ = ("__weakref__",)

        @toolkit.function
        def f(self, x):
            return x

    with pytest.raises(ArgumentError, match="Slotted cannot be traced"):
        Slotted().f(tensor(1.0))


def test_copies_of_functions_start_without_traces():
    double = toolkit.function(lambda x: x * 2.0, reduce_retracing=True)
    double(3)
    other = copy.deepcopy(double)
    assert (other.trace_count, other.reduce_retracing) == (0, True)
    assert float(other(4)) == 8.0


@pytest.mark.usefixtures("no_free_extents")
def test_least_recently_used_program_is_removed():
    double = toolkit.function(lambda x: x * 2.0)
    for n in range(1, MAX_PROGRAMS + 20):
        double(ops.ones((n,)))
        double(ops.ones((1,)))
    assert double.trace_count == MAX_PROGRAMS + 19


def test_input_signature_takes_keywords_and_numbers():
    specs = [toolkit.KerasTensor((2,), "float32"), toolkit.KerasTensor((), "float32")]
    scale = toolkit.function(lambda y, factor: y * factor, input_signature=specs)
    for factor in (2.0, 3.0):
        assert scale(factor=factor, y=ops.ones((2,))).tolist() == [factor, factor]
    assert scale.trace_count == 1


def test_gradient_of_one_tensor_passed_twice_inside_a_trace():
    multiply = toolkit.function(lambda x, y: x * y)
    x = tensor(3.0)
    with toolkit.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = multiply(x, x)
    assert toolkit.function(lambda: tape.gradient(y, x))().tolist() == [6.0]
    assert tape.gradient(y, x).tolist() == [6.0]


def test_call_waits_for_a_step_of_another_thread():
    v = toolkit.Variable(1.0)
    read = toolkit.function(lambda: v * 1.0)
    step = toolkit.function(lambda: v.assign(v + 1.0))
    step()
    call = step.get_concrete_function()
    executable = call.executable
    for number, reader in enumerate((read, lambda: v.value)):
        read()
        results, has_started, goes_on = [], threading.Event(), threading.Event()

        def slowly(run, *arguments):
            has_started.set()  # noqa: B023
            goes_on.wait()  # noqa: B023
            return run(*arguments)

        call.executable = Mock(
            wraps=partial(slowly, executable),
            update=partial(slowly, executable.update),
        )
        writer = threading.Thread(target=step)
        thread = threading.Thread(target=lambda: results.append(reader()))  # noqa: B023
        writer.start()
        has_started.wait()
        thread.start()
        thread.join(0.05)
        assert not results
        goes_on.set()
        writer.join()
        thread.join()
        assert float(results[0]) == number + 3.0


def test_reads_return_the_latest_value():
    v, w = toolkit.Variable([1.0, 2.0]), toolkit.Variable([3.0, 4.0])
    read = toolkit.function(lambda: v * w)
    step = toolkit.function(lambda: v.assign(v + w))
    for change in (
        lambda: v.assign([5.0, 6.0]),
        step,
        lambda: w.assign_add([1.0, 1.0]),
        step,
        step,
    ):
        returned = read()
        before = returned.numpy().copy()
        change()
        assert (read().numpy() == v.numpy() * w.numpy()).all()
        assert (returned.numpy() == before).all()
    with v.lock:
        buffer = v.exclusive_buffer()
    read()
    assert v.exclusive_buffer() is not buffer  # an in-place writer has a copy


def test_threads_trace_once():
    variables = []

    @toolkit.function
    def create_on_first_call(x):
        if not variables:
            time.sleep(0.05)
            variables.append(toolkit.Variable(2.0))
        return x * variables[0]

    threads = [
        threading.Thread(target=create_on_first_call, args=(tensor(1.0),))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (create_on_first_call.trace_count, len(variables)) == (1, 1)


def test_gradient_of_a_captured_tensor():
    x = tensor(1.0, 2.0)
    scaled = toolkit.function(lambda n: n * x * x)
    with pytest.warns(UserWarning, match="a tape watches a tensor that") as log:
        for _ in range(2):
            with toolkit.GradientTape() as tape:
                tape.watch(x)
                y = scaled(tensor(3.0))
            assert tape.gradient(y, x).tolist() == [6.0, 12.0]
            scaled(tensor(3.0))
    assert len(log) == 1


def test_returned_arrays_are_not_shared_between_calls():
    zeros = toolkit.function(lambda x: np.zeros(3))
    first = zeros(tensor(1.0)).numpy()
    first[:] = 7.0
    assert zeros(tensor(1.0)).tolist() == [0.0, 0.0, 0.0]


def test_concrete_function_takes_the_inputs_of_its_trace():
    v = toolkit.Variable(1.0)
    power = toolkit.function(lambda x, n: (v.assign_add(1.0), x**n)[1])
    cube = power.get_concrete_function(tensor(1.0, 2.0), 3)
    assert cube(tensor(2.0, 3.0), 3).tolist() == [8.0, 27.0]
    assert cube(np.array([1.0, 0.0], "float32")).tolist() == [1.0, 0.0]
    assert float(v) == 3.0
    with pytest.raises(ShapeError, match=r"this trace expects \[float32\[2\]\]"):
        cube(tensor(1.0))
    outer = toolkit.function(lambda x: cube(x) + 1.0)
    assert outer(tensor(2.0, 0.0)).tolist() == [9.0, 1.0]
    assert float(v) == 4.0


def counted(function):
    """Return a traced function, and the list of its traces."""
    traces = []

    @toolkit.function
    @wraps(function)
    def traced(x, by=2, *, plus=0):
        traces.append(by)
        return function(x, by, plus)

    return traced, traces


def test_equal_calls_share_a_trace():
    x = ops.ones(())
    traced, traces = counted(lambda x, by, plus: x * by + plus)
    values = [
        *(traced(x), traced(x, 2), traced(x, by=2), traced(x=x, by=2)),
        *(traced(by=2, x=x), traced(x, 2, plus=0), traced(plus=0, x=x)),
    ]
    assert [float(v) for v in values] == [2.0] * 7 and traces == [2]
    assert float(traced(x, by=3)) == float(traced(x, 3)) == 3.0 and traces == [2, 3]
    assert float(traced(x, plus=1)) == 3.0 and len(traces) == 3


def test_arguments_of_methods_and_of_any_number_share_a_trace():
    traces = []

    class Scale:
        @toolkit.function
        def call(self, x, by=2, *factors, **options):
            traces.append((by, factors, options))
            return x * by

    scale, x = Scale(), ops.ones(())
    assert float(scale.call(x)) == float(scale.call(x, by=2)) == 2.0
    assert traces == [(2, (), {})]
    scale.call(x, 2, 3, a=1, b=2)
    scale.call(x, 2, 3, b=2, a=1)
    assert len(traces) == 2


def test_wrapper_keeps_its_defaults():
    def inner(x, by=2):
        return x * by

    @toolkit.function
    @wraps(inner)
    def outer(*args, **kwargs):
        kwargs.setdefault("by", 5)
        return inner(*args, **kwargs)

    assert float(outer(ops.ones(()))) == 5.0
    assert float(outer(ops.ones(()), by=3)) == 3.0


def test_wrong_call_raises_the_error_of_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        counted(lambda x, by, plus: x)[0](ops.ones(()), other=1)
