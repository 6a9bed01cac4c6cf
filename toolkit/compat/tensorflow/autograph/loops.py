"""`while` and `for` over tensors: the body is traced once, as the body of a
`while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from toolkit import data, ops
from toolkit.compat.tensorflow.autograph.assignment_targets import Absent
from toolkit.compat.tensorflow.autograph.branches import if_
from toolkit.compat.tensorflow.autograph.values import (
    Split,
    Undefined,
    are_same,
    check_same_spec,
    common_dtype,
    different_values_error,
    is_dynamic,
    is_number,
    is_weak,
)
from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor, state

# A loop with at most this number of static steps is unrolled: its indices are static.
UNROLLED = 128
PLACES = "before the loop", "after a step"


class RunEagerly(Exception):
    """Signal that a function cannot be one graph: it loops over a data set."""


@dataclass
class Range:
    """A range whose ends depend on the run of the graph."""

    start: Any
    limit: Any
    delta: Any


class _Retrace(Exception):
    """Signal for a new trace: a name needs another dtype or a value, or the loop a
    bound."""


@dataclass
class _Options:
    """The options of `set_loop_options` for a loop."""

    limit: int | None
    has_open_shapes: bool = False


_options: list[_Options] = []  # of the enclosing loops, from the outermost


def set_loop_options(
    parallel_iterations: int | None = None,
    swap_memory: bool | None = None,
    maximum_iterations: int | None = None,
    shape_invariants: Any = None,
) -> None:
    """Set the options of the enclosing loop over tensors.

    Args:
        parallel_iterations, swap_memory: have no effect.
        maximum_iterations: the bound, an integer; the gradient of a loop needs it.
        shape_invariants: pairs of a variable and its shape, with None for dynamic
            extents. A function whose loop changes a shape runs eagerly.
    """
    if not _options:
        return
    options = _options[-1]
    options.has_open_shapes |= bool(shape_invariants)
    if maximum_iterations is not None:
        bound = int(maximum_iterations)
        if options.limit != bound:
            options.limit = bound
            raise _Retrace


def while_(
    test: Callable[[], Any],
    body: Callable[[], None],
    get: Callable[[], Any],
    set_: Callable[[Any], None],
    names: Sequence[str],
    read_outside: Sequence[str],
) -> None:
    """Run `body` while `test` holds; trace the loop if the test is a traced tensor."""
    known_steps = 0
    while not is_dynamic(holds := test()) and known_steps <= UNROLLED:
        if not holds:
            return
        body()
        known_steps += isinstance(holds, Tensor)
    _Loop(get, set_, names, read_outside).run("while", test, body)


def for_(
    iterable: Any,
    stop: Callable[[], Any] | None,
    body: Callable[[Any], None],
    get: Callable[[], Any],
    set_: Callable[[Any], None],
    names: Sequence[str],
    read_outside: Sequence[str],
) -> None:
    """Run `body` for each element, while `stop`, if given, holds."""
    if state.trace is not None and isinstance(iterable, data.Dataset):
        raise RunEagerly
    loop = _Loop(get, set_, names, read_outside)
    if isinstance(iterable, Range):
        loop.run_range(iterable, stop, body)
    elif _is_long(iterable):
        full_range = Range(convert(0), convert(len(iterable)), convert(1))
        loop.run_range(full_range, stop, lambda i: body(iterable[i]), len(iterable))
    else:
        _unroll(iterable, stop, body, get, set_, names)


def _is_long(iterable: Any) -> bool:
    is_tensor = isinstance(iterable, Tensor) and iterable.ndim > 0
    return state.trace is not None and is_tensor and len(iterable) > UNROLLED


def _unroll(
    iterable: Any, stop: Any, body: Any, get: Any, set_: Any, names: Sequence[str]
) -> None:
    for item in iterable:
        goes_on = True if stop is None else stop()
        if is_dynamic(goes_on):
            step = lambda item=item: body(item)  # noqa: E731
            if_(goes_on, step, lambda: None, get, set_, names)
        elif goes_on:
            body(item)
        else:
            return


@dataclass
class _Loop:
    """A loop over tensors: the names that its body assigns, and their values."""

    get: Callable[[], Any]
    set: Callable[[Any], None]
    names: Sequence[str]
    read_outside: Sequence[str]
    kind: str = "while"
    limit: int | None = None
    dtypes: dict[tuple[int, int], str] = field(default_factory=dict)

    def run_range(
        self, ends: Range, stop: Any, body: Callable[[Any], None], limit: Any = None
    ) -> None:
        """Run `body` for the numbers of a range."""
        self.limit = limit
        counter = [ends.start]

        def test() -> Any:
            up, down = counter[0] < ends.limit, counter[0] > ends.limit
            goes_on = ops.where(ends.delta > 0, up, down)
            return goes_on if stop is None else ops.logical_and(goes_on, stop())

        def step() -> None:
            body(counter[0])
            counter[0] = counter[0] + ends.delta

        names, get, set_ = self.names, self.get, self.set
        self.names = [*names, "the number of the step"]
        self.get = lambda: (*get(), counter[0])

        def set_all(values: Any) -> None:
            *outer_values, counter[0] = values
            set_(outer_values)

        self.set = set_all
        self.run("for", test, step)

    def run(self, kind: str, test: Callable[[], Any], body: Callable[[], None]) -> None:
        """Trace the loop, and set the names to its results."""
        self.kind = kind
        self.before = [Split.of(value) for value in self.get()]
        keys, finals = self._trace(test, body)
        while finals is None:
            keys, finals = self._trace(test, body)
        self.set(self._values(keys, finals, "after a loop over a tensor"))

    def _trace(self, test: Callable[[], Any], body: Callable[[], None]) -> Any:
        """Return the carried leaves and their final values.

        The final values are None if the loop needs a new trace.
        """
        keys = self._carried_keys()
        leaves = [
            convert(self.before[i].leaves[j], self.dtypes.get((i, j))) for i, j in keys
        ]
        try:
            with self._with_options():
                return keys, ops.while_loop(
                    lambda *xs: self._test(keys, xs, test),
                    lambda *xs: self._step(keys, xs, body),
                    tuple(leaves),
                    self.limit,
                )
        except _Retrace:
            return keys, None

    @contextmanager
    def _with_options(self) -> Any:
        _options.append(_Options(self.limit))
        try:
            yield
        finally:
            self.limit = _options.pop().limit

    def _carried_keys(self) -> list[tuple[int, int]]:
        """Return the leaves that the loop carries between iterations."""
        return [
            (i, j)
            for i, split in enumerate(self.before)
            for j, leaf in enumerate(split.leaves)
            if is_number(leaf)
        ]

    def _values(self, keys: Any, leaves: Any, where: str) -> list[Any]:
        """Return the values of the names with the leaves of an iteration."""
        current = dict(zip(keys, leaves, strict=True))
        return [
            Undefined(name, where)
            if split.is_undefined
            else split.with_leaves(
                [current.get((i, j), x) for j, x in enumerate(split.leaves)]
            )
            for i, (name, split) in enumerate(zip(self.names, self.before, strict=True))
        ]

    def _test(self, keys: Any, leaves: Any, test: Callable[[], Any]) -> Any:
        self.set(self._values(keys, leaves, "at the beginning of a step"))
        return ops.reshape(convert(test(), "bool"), ())

    def _step(self, keys: Any, leaves: Any, body: Callable[[], None]) -> Any:
        self.set(self._values(keys, leaves, "at the beginning of a step"))
        kinds = [leaf.dtype for leaf in leaves]
        body()
        after = [Split.of(value) for value in self.get()]
        for i, (old, new) in enumerate(zip(self.before, after, strict=True)):
            self._compare(i, old, new)
        new_leaves = (after[i].leaves[j] for i, j in keys)
        return tuple(
            convert(x, kind) for x, kind in zip(new_leaves, kinds, strict=True)
        )

    def _compare(self, i: int, old: Split, new: Split) -> None:
        name = self.names[i]
        if old.is_undefined:
            is_read = name in self.read_outside or isinstance(old.value, Absent)
            if is_read and not new.is_undefined:
                self.before[i] = Split.of(new.zeros())  # the value without an iteration
                raise _Retrace
            return
        if new.is_undefined or not old.has_form_of(new):
            raise different_values_error(self.kind, name, PLACES, old.value, new.value)
        for j, (a, b) in enumerate(zip(old.leaves, new.leaves, strict=True)):
            if is_number(a) and is_number(b):
                self._adapt_dtype(i, j, name, a, b)
            elif not are_same(a, b):
                raise different_values_error(self.kind, name, PLACES, a, b)

    def _adapt_dtype(self, i: int, j: int, name: str, a: Any, b: Any) -> None:
        """Give a Python number the dtype of its value after an iteration."""
        if _options[-1].has_open_shapes and ops.shape(a) != ops.shape(b):
            raise NeedsValues(f"a `{self.kind}` loop that changes a shape")
        check_same_spec(self.kind, name, PLACES, a, b)
        dtype = common_dtype(a, b)
        if is_weak(a) and self.dtypes.get((i, j), convert(a).dtype) != dtype:
            self.dtypes[i, j] = str(dtype)
            raise _Retrace
