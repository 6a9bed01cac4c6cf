"""Calls of plain programs: one Python function without loops for each program.

A small program takes a microsecond, and loops over its few arrays would take another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, MutableSequence, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.backends.step_function import make_function
from toolkit.plans.operands import contiguous
from toolkit.plans.rules import rules

if TYPE_CHECKING:
    from toolkit.compiler.bound import BoundProgram

Array = Any
_Convert = Callable[[Array], Array]


def make_call(bound: BoundProgram) -> Callable[..., list[Array]]:
    """Return a function of the arrays of a call, which returns new arrays.

    Args:
        bound: a plain program, see `Program.is_plain`, for one call at a time.
    """
    inputs = bound.graph.inputs
    xs, ys = _names("x", inputs), _names("y", bound.specs)
    lines = [
        f"if type({x}) is not ndarray or {x}.strides != s_{x}: {x} = as_row_major({x})"
        for x in xs
    ]
    lines += [f"{y} = new_{y}()" for y in ys]
    lines += [_store(xs, ys), "bound.updated_ids = []", "for step in steps: step()"]
    lines.append(f"return [{', '.join(ys)}]")
    strides = [contiguous(x.spec).strides for x in inputs]
    objects = {"bound": bound, **_objects(bound, xs, ys, strides)}
    return make_function(xs, lines, objects)


def make_step_call(
    bound: BoundProgram,
    strides: Sequence[tuple[int, ...]],
    convert: Sequence[_Convert | None],
    otherwise: Callable[..., object],
) -> Callable[..., object]:
    """Return a function that runs a plain program for operands with some strides.

    Args:
        bound: the program. No other function uses it.
        strides: the strides of the operands.
        convert: functions of results, or None.
        otherwise: computes the results for other strides, under rules that exclude
            generated code, and while another thread runs the program.
    """
    xs, ys = _names("x", strides), _names("y", bound.specs)
    fallback = f"return otherwise({', '.join(xs)})"
    lines = [
        "if rules.array_kernels_only or rules.rows_independent "
        f"or rules.processor is not None: {fallback}"
    ]
    for x, value, steps in zip(xs, bound.graph.inputs, strides, strict=True):
        lines.append(f"if {x}.strides != s_{x}: {fallback}")
        if steps != contiguous(value.spec).strides:
            lines.append(f"{x} = as_row_major({x})")
        elif not steps:  # NumPy returns numbers, not arrays without axes
            lines.append(f"if type({x}) is not ndarray: {x} = as_row_major({x})")
    lines += [f"{y} = new_{y}()" for y in ys]
    lines += ["try: token = idle.pop()", f"except IndexError: {fallback}"]
    lines += ["try:", f" {_store(xs, ys)}", " for step in steps: step()"]
    lines += ["finally: idle.append(token)"]
    functions = {}
    for y, function in zip(ys, convert, strict=True):
        if function is not None:
            functions[f"convert_{y}"] = function
            lines.append(f"{y} = convert_{y}({y})")
    lines.append(f"return {', '.join(ys)}")
    objects = {"otherwise": otherwise, "rules": rules, "idle": [None], **functions}
    return make_function(xs, lines, {**objects, **_objects(bound, xs, ys, strides)})


def _names(prefix: str, values: Sequence[object]) -> list[str]:
    return [f"{prefix}{i}" for i in range(len(values))]


def _store(xs: Sequence[str], ys: Sequence[str]) -> str:
    """Return the statement that stores the handles of the arrays of a call."""
    handles = ", ".join(f"handle({name})" for name in (*xs, *ys))
    return f"pack(objects, 0, {handles})"


def _objects(
    bound: BoundProgram,
    xs: Sequence[str],
    ys: Sequence[str],
    strides: Sequence[tuple[int, ...]],
) -> dict[str, object]:
    """Return the objects that both functions use, by name."""
    table = bound.objects
    pack: Callable[..., None] = _assign
    if isinstance(table, ctypes.Array):
        pack = Struct(f"{len(table)}q").pack_into
    return {
        "ndarray": np.ndarray,
        "as_row_major": bound.memory.as_row_major,
        "handle": bound.handle,
        "pack": pack,
        "objects": table,
        "steps": tuple(bound.steps),
        **{f"s_{x}": steps for x, steps in zip(xs, strides, strict=True)},
        **{f"new_{y}": new for y, new in zip(ys, bound.allocators, strict=True)},
    }


def _assign(table: MutableSequence[int], start: int, *handles: int) -> None:
    """Store handles in a table that is no array of integers."""
    table[start:] = handles
