"""Branches and loops, whose bodies are graphs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.control_flow.branches import cond
from toolkit.control_flow.loops import scan, while_loop
from toolkit.errors import ModelFileError, ShapeError, UnsupportedError
from toolkit.models.importing.call import Call, NeedsValuesError, Operator, axis_of
from toolkit.models.importing.ledger import MAX_REPEATS
from toolkit.models.importing.values import Value, ValueList
from toolkit.reading.onnx.graph import OnnxGraph

_UNROLLED = 16  # steps of a loop that is unrolled in the graph
_WAYS = ("axes", "directions")


def _if(call: Call, condition: Value) -> tuple[Value, ...]:
    branches = call.graph("then_branch"), call.graph("else_branch")
    if condition.size != 1:
        raise ModelFileError(f"expected one condition; received {condition.shape}")
    array = call.static_array_or_none(condition)
    if array is not None:
        branch_taken = branches[0] if bool(array.reshape(())) else branches[1]
        return tuple(call.run(branch_taken, []))

    specs: list[Any] = []

    def branch(graph: OnnxGraph) -> Any:
        def run() -> Any:
            results = call.run(graph, [])
            specs.append([(v.shape, v.dtype) for v in results])
            return tuple(v.tensor for v in results)

        return run

    try:
        tensors = cond(ops.reshape(condition.tensor, ()), *map(branch, branches))
    except ShapeError:
        if len(specs) < 2 or specs[0] == specs[1]:
            raise
        raise NeedsValuesError(
            "the condition is computed from data, and the branches return "
            f"{specs[0]} and {specs[1]}; a compiled function needs equal shapes. "
            "Call the model outside of `toolkit.function`"
        ) from None
    return tuple(Value(t) for t in tensors)


def _loop(
    call: Call,
    count: Value | None = None,
    condition: Value | None = None,
    *initial: Value,
) -> tuple[Value, ...]:
    body = call.graph("body")
    if any(v is None for v in initial) or len(body.inputs) != len(initial) + 2:
        raise ModelFileError(
            f"expected {len(body.inputs) - 2} initial values; received {len(initial)}"
        )
    if len(body.outputs) < len(initial) + 1:
        raise ModelFileError("the body has fewer outputs than loop variables")
    steps = None if count is None else call.static_number(count, None, "the count")
    start = None if condition is None else call.static_array_or_none(condition)
    if start is not None and not start.reshape(-1)[:1].any():
        steps = 0
    condition_value = _is_always_true(body)
    has_lists = any(isinstance(v, ValueList) for v in initial)
    if has_lists or (steps is not None and (steps <= _UNROLLED or not condition_value)):
        results = _unrolled(call, body, steps, initial)
        if results is not None:
            return results
    scans = len(body.outputs) - 1 - len(initial)
    if condition_value and steps is not None:
        with call.loop(steps):
            return _counted(call, body, max(steps, 0), initial)
    if scans or has_lists:
        if start is None and condition is not None:
            raise NeedsValuesError(
                "the condition of a loop that collects results is computed from data; "
                "call the model outside of `toolkit.function`"
            )
        results = _unrolled(call, body, steps, initial)
        if results is not None:
            return results
        raise NeedsValuesError(
            "the end of a loop that collects results depends on data; call the model "
            "outside of `toolkit.function`"
        )
    return _conditional(call, body, steps, condition, initial)


def _is_always_true(body: OnnxGraph) -> bool:
    """Return whether only the count ends a loop: the condition is unchanged or True."""
    producers = {out: node for node in body.nodes for out in node.outputs}
    name = body.outputs[0].name
    while name in producers and producers[name].op in ("Identity", "Cast"):
        name = producers[name].inputs[0]
    if name == body.inputs[1].name:
        return True
    array = body.initializers.get(name)
    if name in producers and producers[name].op == "Constant":
        array = producers[name].attributes.get("value")
    return isinstance(array, np.ndarray) and bool(array.all())


def _unrolled(call: Call, body: OnnxGraph, steps: int | None, initial: Any) -> Any:
    """Return the results of each step; None if the end depends on data."""
    carried, rows = list(initial), []
    for i in itertools.count() if steps is None else range(max(steps, 0)):
        call.step()
        inputs = [Value.of(np.array(i, np.int64)), Value.of(np.array(True)), *carried]
        condition_value, *results = call.run(body, inputs)
        carried = results[: len(initial)]
        rows.append(results[len(initial) :])
        array = call.static_array_or_none(condition_value)
        if array is None:
            if not _is_always_true(body):
                return None
        elif not array.reshape(-1)[:1].any():
            break
    if not rows:
        if len(body.outputs) > 1 + len(initial):
            raise UnsupportedError(
                "a loop without iterations that stacks results is unsupported"
            )
        return tuple(carried)
    stacked = [
        Value(ops.stack([v.tensor for v in column]))
        for column in zip(*rows, strict=True)
    ]
    return *carried, *stacked


def _counted(call: Call, body: OnnxGraph, steps: int, initial: Any) -> Any:
    def step(carry: Any, i: Any) -> Any:
        inputs = [Value(i), Value.of(np.array(True)), *map(Value, carry)]
        _, *results = call.run(body, inputs)
        tensors = [v.tensor for v in results]
        return tuple(tensors[: len(initial)]), tuple(tensors[len(initial) :])

    counter = ops.arange(steps, dtype="int64")
    carry = tuple(v.tensor for v in initial)
    last, stacked = scan(step, carry, counter, length=steps)
    return tuple(Value(t) for t in (*last, *stacked))


def _conditional(
    call: Call, body: OnnxGraph, steps: Any, condition: Value | None, initial: Any
) -> Any:
    def step(i: Any, running: Any, *carry: Any) -> Any:
        inputs = [Value(i), Value(running), *map(Value, carry)]
        condition_value, *results = call.run(body, inputs)
        condition_value = ops.reshape(ops.cast(condition_value.tensor, "bool"), ())
        return i + 1, condition_value, *(v.tensor for v in results)

    limit = int(steps) if steps is not None and steps <= MAX_REPEATS else None
    running = ops.convert_to_tensor(np.array(True))
    if condition is not None:
        running = ops.reshape(condition.tensor, ())
    start = ops.convert_to_tensor(np.array(0, np.int64))
    carry = (start, running, *(v.tensor for v in initial))
    outputs = while_loop(lambda i, run, *_: run, step, carry, limit)
    return tuple(Value(t) for t in outputs[2:])


def _scan(call: Call, *inputs: Value) -> tuple[Value, ...]:
    body, scanned = call.graph("body"), call.integer("num_scan_inputs")
    states = len(inputs) - scanned
    if call.opset < 9 or not 1 <= scanned <= len(inputs):
        raise UnsupportedError(
            f"unsupported Scan of opset {call.opset} over {scanned} inputs"
        )
    outputs = len(body.outputs) - states
    if outputs < 0 or len(body.inputs) != len(inputs):
        raise ModelFileError(
            f"expected {len(body.inputs)} inputs of the body; received {len(inputs)}"
        )
    ways_in, ways_out = (
        [call.integers(f"scan_{side}_{way}", (0,) * n) for way in _WAYS]
        for side, n in (("input", scanned), ("output", outputs))
    )
    if {*map(len, ways_in)} != {scanned} or {*map(len, ways_out)} != {outputs}:
        raise ModelFileError(
            "expected an axis and a direction for each scan input and output; "
            f"received {ways_in} and {ways_out}"
        )
    xs = []
    for value, axis, back in zip(inputs[states:], *ways_in, strict=True):
        tensor = ops.moveaxis(value.tensor, axis_of(axis, value.ndim), 0)
        xs.append(ops.flip(tensor, axis=0) if back else tensor)

    def step(carry: Any, row: Any) -> Any:
        results = [v.tensor for v in call.run(body, list(map(Value, (*carry, *row))))]
        return tuple(results[:states]), tuple(results[states:])

    carry = tuple(v.tensor for v in inputs[:states])
    with call.loop(xs[0].shape[0]):
        last, stacked = scan(step, carry, tuple(xs), length=xs[0].shape[0])
    values = [Value(t) for t in last]
    for y, axis, back in zip(stacked, *ways_out, strict=True):
        y = ops.flip(y, axis=0) if back else y
        values.append(Value(ops.moveaxis(y, 0, axis_of(axis, y.ndim))))
    return tuple(values)


OPERATORS = (
    Operator("If", _if, has_graphs=True),
    Operator("Loop", _loop, host=(0,), has_graphs=True),
    Operator("Scan", _scan, has_graphs=True),
)
