"""Replays of reverse passes: the kernels of a repeated pass, with the same bits.

The first pass for a sequence of operations runs as Python code. The second pass also
traces this code, and compares the results. Later passes run the kernels of the trace.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from toolkit import settings
from toolkit.autodiff.tape import GradientTape
from toolkit.console.frames import is_package_function
from toolkit.core.replays import (
    KERNEL_ERRORS,
    NotReplayable,
    Replay,
    TraceBudget,
    make_replay,
    same_bits,
)
from toolkit.core.slices import IndexedSlices, slices_of
from toolkit.core.tensor import Tensor, state
from toolkit.functions.tape_keys import (
    CallKey,
    OperationKey,
    has_registered_operations,
    is_possible,
    require_values,
    reverse_on,
)

# Elements of the largest gradient that is the sum of slices. Larger ones are lazy.
_MAX_DENSE = 4096
# Elements of all values of a tape. They are in memory anyway.
_MAX_ELEMENTS = 1 << 28
# Replays, keys of calls, and sequences of operations that occurred once.
_MAX_REPLAYS, _MAX_CALLS, _MAX_PASSES = 512, 2048, 2048

# The replay of each sequence; None if it has none.
_replays: dict[Any, ReverseReplay | None] = {}
# The replay of a call, and the positions of its inputs among the values.
_calls: dict[Any, tuple[ReverseReplay | None, list[int]]] = {}
_passes: dict[Any, int] = {}
_budget = TraceBudget()
_lock = threading.Lock()


def clear() -> None:
    """Remove all replays: a setting has changed."""
    global _replays, _calls, _budget
    _replays, _calls = {}, {}
    _passes.clear()
    _budget = TraceBudget()


settings.on_change(clear)


def count() -> int:
    """Return the number of replays."""
    return sum(replay is not None for replay in _replays.values())


class _Gradient(NamedTuple):
    """Indices of the tensors of a gradient.

    An index is the position of a value, or a negative number: -1 for the first result
    of the kernels.
    """

    total: int
    # The indices and the values of each of its slices.
    slices: tuple[tuple[int, int], ...] = ()

    def renumber(self, positions: Mapping[int, int]) -> _Gradient:
        """Return the gradient with other positions of values."""

        def new(i: int) -> int:
            return positions.get(i, i)

        slices = tuple((new(i), new(j)) for i, j in self.slices)
        return _Gradient(new(self.total), slices)


class ReverseReplay:
    """Kernels of a reverse pass.

    Args:
        replay: the kernels; None if there are none.
        operands: the indices of their operands among the values of an `OperationKey`.
        plan: the gradient of each source, or None.

    Attributes:
        indices: the indices of the values that the pass reads.
    """

    def __init__(
        self,
        replay: Replay | None,
        operands: list[int],
        plan: list[_Gradient | None],
    ) -> None:
        self._replay, self._num_operands = replay, len(operands)
        used = [i for g in plan if g for i in (g.total, *chain(*g.slices)) if i >= 0]
        self.indices: list[int] = [*operands, *used]
        positions = {i: position for position, i in enumerate(self.indices)}
        self._plan = [g and g.renumber(positions) for g in plan]
        # The index of each gradient, if all of them are tensors without slices.
        self._totals: list[int] | None = None
        if all(g is not None and not g.slices for g in plan):
            self._totals = [g.total for g in self._plan if g is not None]

    def run(self, values: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradient of each source.

        Args:
            values: the read values.
        """
        results: Any = ()
        if self._replay is not None:
            operands = values[: self._num_operands]
            results = self._replay.run(*[x._array for x in operands])
        if self._totals is not None:
            return [values[i] if i >= 0 else results[-1 - i] for i in self._totals]
        gradients = list[Tensor | None]()
        for gradient in self._plan:
            if gradient is None:
                gradients.append(None)
                continue
            i, slices = gradient
            total = values[i] if i >= 0 else results[-1 - i]
            if slices:
                total._slices = tuple(
                    IndexedSlices(
                        *[values[j] if j >= 0 else results[-1 - j] for j in pair]
                    )
                    for pair in slices
                )
            gradients.append(total)
        return gradients


def reverse(
    tape: GradientTape,
    targets: list[Tensor],
    sources: list[object],
    weights: list[Tensor] | None,
) -> list[Tensor | None] | None:
    """Return the gradient of each source by a replay, or by a pass that is traced.

    Args:
        tape: a tape that has recorded the targets.
        targets: tensors, whose sum is differentiated.
        sources: Variables and tensors.
        weights: weights of the elements of each target; ones if None.

    Returns:
        The gradients, each None or a tensor; or None if the caller computes them.
    """
    if not is_possible(tape, targets):
        return None
    if weights is not None and not _fit(weights, targets):
        return None
    calls = _calls
    try:
        call = CallKey(tape, targets, sources, weights)
        cached = calls.get(call.key)
    except TypeError:  # an attribute is not hashable, such as a graph
        return None
    values = None if cached is None else call.read(cached[1])
    if cached is None or values is None:
        # The key of the operations computes the values that the tape does not store.
        record = OperationKey(tape, targets, sources, weights)
        call = CallKey(tape, targets, sources, weights)
        if record.key not in _replays:
            return _run_new(tape, record, targets, sources, weights)
        replay, positions = _replays[record.key], list[int]()
        if replay is not None:
            positions = require_values(tape, call, record, replay.indices)
        if len(calls) >= _MAX_CALLS:
            calls.clear()
        cached = calls[call.key] = replay, positions
        values = call.read(positions)
    replay = cached[0]
    if replay is None or values is None:
        return None
    try:
        return replay.run(values)
    except KERNEL_ERRORS:  # the pass in Python raises it with an explanation
        return None


def _fit(weights: Sequence[object], targets: Sequence[Tensor]) -> bool:
    """Return whether weights need no conversion."""
    if len(weights) != len(targets):
        return False
    for g, y in zip(weights, targets, strict=True):
        if type(g) is not Tensor or type(g._array) is not np.ndarray:
            return False
        if g._dtype != y._dtype or g._array.shape != y._array.shape:
            return False
    return True


def _run_new(
    tape: GradientTape,
    record: OperationKey,
    targets: list[Tensor],
    sources: list[object],
    weights: list[Tensor] | None,
) -> list[Tensor | None] | None:
    """Note a pass without a replay. At the second pass run it, and create a replay."""
    replays, number = _replays, _passes.get(record.key, 0)
    if number < _budget.num_calls:
        if not number and len(_passes) >= _MAX_PASSES:
            _passes.clear()
        _passes[record.key] = number + 1
        return None
    results: list[Tensor | None] = tape.run_reverse(targets, sources, weights)
    with _lock:
        if len(replays) >= _MAX_REPLAYS:
            replays.clear()
            _calls.clear()
            _budget.note_drop()
        with _budget.spend():
            replays[record.key] = _replay_of(tape, record, results)
        _passes.pop(record.key, None)
    return results


def _replay_of(
    tape: GradientTape, record: OperationKey, results: Sequence[Tensor | None]
) -> ReverseReplay | None:
    """Return the replay of a pass; None if its results can differ.

    Args:
        tape: the tape.
        record: the key of the operations.
        results: the gradients.
    """
    values = record.values
    if not all(type(x) is Tensor and type(x._array) is np.ndarray for x in values):
        return None
    if not (has_registered_operations(tape) and _has_package_rules(tape)):
        return None
    plan: list[_Gradient | None] = []
    operands: list[int] = []

    def compute(*inputs: Tensor) -> list[Tensor]:
        outputs = list[Tensor]()
        positions = {x: i for i, x in enumerate(inputs)}

        def locate(x: Tensor) -> int:
            if x not in positions:
                outputs.append(x)
                positions[x] = -len(outputs)
            return positions[x]

        plan.clear()
        for g in reverse_on(tape, record, inputs):
            slices = () if g is None else slices_of(g)
            if slices and (g in positions or g.size > _MAX_DENSE):
                raise NotReplayable
            pairs = tuple((locate(s.indices), locate(s.values)) for s in slices)
            plan.append(None if g is None else _Gradient(locate(g), pairs))
        if not outputs:
            raise _NoKernels
        trace: Any = state.trace
        operands[:] = trace.drop_unused_inputs(outputs)
        return outputs

    try:
        specs = [x.spec for x in values]
        replay = make_replay("gradient", compute, specs, _MAX_ELEMENTS)
    except _NoKernels:
        return ReverseReplay(None, [], plan)
    if replay is None or replay.variables or replay.written:
        return None
    checked = ReverseReplay(replay, operands, plan)
    try:
        repeated = checked.run([values[i] for i in checked.indices])
    except KERNEL_ERRORS:
        return None
    return checked if all(map(_is_same, results, repeated)) else None


def _as_tensor(x: Tensor) -> Tensor:
    """Return a tensor whose data may be deferred as a plain tensor."""
    return Tensor(x._array, x.spec)


class _NoKernels(Exception):
    """Error raised for a pass whose results are all values of the tape."""


def _is_same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    slices = slices_of(a), slices_of(b)
    return same_bits(_as_tensor(a), b) and same_bits(*slices)


def _has_package_rules(tape: GradientTape) -> bool:
    """Return whether all gradients of the operations are code of this package."""
    rules: list[Any] = []
    for node in tape._nodes:
        vjp = node.op.vjp
        rules += vjp if isinstance(vjp, tuple) else (vjp, node.op.body)
    return all(is_package_function(rule) for rule in rules if rule is not None)
