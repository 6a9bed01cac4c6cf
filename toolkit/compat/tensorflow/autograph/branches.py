"""`if` over a tensor: both branches are traced, and a `cond` joins them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.compat.tensorflow.autograph.assignment_targets import Absent
from toolkit.compat.tensorflow.autograph.early_exits import RESULT, is_flag
from toolkit.compat.tensorflow.autograph.values import (
    Split,
    Undefined,
    are_same,
    check_same_spec,
    common_dtype,
    different_values_error,
    is_dynamic,
    is_number,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.control_flow.bodies import Body, trace_body
from toolkit.control_flow.branches import bind_branches
from toolkit.errors import ShapeError

_ONE_BRANCH = "only one branch of an `if` over a tensor sets it"
PLACES = "in one branch", "in the other"


class _Retrace(Exception):
    """Signal for a new trace: a branch needs another dtype, or zeros for a missing
    value."""


def if_(
    test: Any,
    body: Callable[[], None],
    orelse: Callable[[], None],
    get: Callable[[], Any],
    set_: Callable[[Any], None],
    names: Sequence[str],
) -> None:
    """Run `body` or `orelse`, and set the names to the values that they assign."""
    if not is_dynamic(test):
        (body if test else orelse)()
        return
    test = convert(test, "bool")
    if test.size != 1:
        raise ShapeError(
            f"if: expected a scalar condition; received shape {test.shape}"
        )
    joint = _BranchPair(get(), get, set_, names)
    while True:
        sides = joint.side(body), joint.side(orelse)
        try:
            set_(joint.join(test, *sides))
        except _Retrace:
            continue
        return


class _BranchPair:
    """The two traced branches and their common state."""

    def __init__(self, before: Any, get: Any, set_: Any, names: Sequence[str]) -> None:
        self.before, self.get, self.set, self.names = before, get, set_, names
        self.dtypes: dict[tuple[int, int], str] = {}  # (name, leaf) -> dtype
        # name -> value whose zeros replace a missing value
        self.fills: dict[int, Split] = {}

    def side(self, branch: Callable[[], None]) -> _TracedBranch:
        """Trace a branch."""
        side = _TracedBranch()

        def run() -> list[Any]:
            self.set(self.before)
            branch()
            side.values = [self._filled(i, x) for i, x in enumerate(self.get())]
            return side.take_numbers(self.dtypes)

        side.body, _ = trace_body("if", run)
        return side

    def _filled(self, i: int, value: Any) -> Split:
        if isinstance(value, Undefined) and i in self.fills:
            value = self.fills[i].zeros()
        return Split.of(value)

    def join(self, test: Any, yes: _TracedBranch, no: _TracedBranch) -> list[Any]:
        """Return the values after the conditional."""
        results_or_splits: list[Any] = []
        leaf_keys: list[tuple[int, int]] = []
        for i, name in enumerate(self.names):
            a, b = yes.values[i], no.values[i]
            if a.is_undefined or b.is_undefined:
                results_or_splits.append(self._merge_half_defined(i, name, yes, no))
                continue
            if not a.has_form_of(b):
                raise different_values_error("if", name, PLACES, a.value, b.value)
            results_or_splits.append(a)
            pairs = enumerate(zip(a.leaves, b.leaves, strict=True))
            leaf_keys += [
                (i, j)
                for j, pair in pairs
                if self._depends_on_branch(i, j, name, *pair)
            ]
        outputs = bind_branches(
            test, yes.select_outputs(leaf_keys), no.select_outputs(leaf_keys)
        )
        results = dict(zip(leaf_keys, outputs, strict=True))
        return [
            x
            if not isinstance(x, Split)
            else x.with_leaves([results.get((i, j), y) for j, y in enumerate(x.leaves)])
            for i, x in enumerate(results_or_splits)
        ]

    def _merge_half_defined(
        self, i: int, name: str, yes: _TracedBranch, no: _TracedBranch
    ) -> Any:
        """Return the value of a name that at most one branch assigns.

        If the other branch exits the function or loop, its value is never read: zeros
        are sufficient.
        """
        a, b = yes.values[i], no.values[i]
        if a.is_undefined and b.is_undefined:
            return a.value
        lacking, other = (yes, b) if a.is_undefined else (no, a)
        if name == RESULT or lacking.exits(self.names):
            self.fills[i] = other
            raise _Retrace
        if isinstance(lacking.values[i].value, Absent):  # an item
            raise UnboundLocalError(f"if: {name!r} has no value, because {_ONE_BRANCH}")
        return Undefined(name, f"here: {_ONE_BRANCH}")

    def _depends_on_branch(self, i: int, j: int, name: str, a: Any, b: Any) -> bool:
        """Return whether a leaf depends on the branch."""
        if are_same(a, b):
            return False
        if not (is_number(a) and is_number(b)):
            raise different_values_error("if", name, PLACES, a, b)
        check_same_spec("if", name, PLACES, a, b)
        dtype = common_dtype(a, b)
        if (i, j) not in self.dtypes and any(convert(x).dtype != dtype for x in (a, b)):
            self.dtypes[i, j] = str(dtype)
            raise _Retrace
        return True


class _TracedBranch:
    """The result of a traced branch: the values of the names, and its traced body."""

    values: list[Split]
    body: Body

    def __init__(self) -> None:
        self.leaf_keys: list[tuple[int, int]] = []

    def exits(self, names: Sequence[str]) -> bool:
        """Return whether the branch ends in `return`, `break` or `continue`."""
        pairs = zip(names, self.values, strict=True)
        return any(is_flag(name) and split.value is True for name, split in pairs)

    def take_numbers(self, dtypes: dict[tuple[int, int], str]) -> list[Any]:
        """Return the numeric leaves as the outputs of the body."""
        every = [
            ((i, j), leaf)
            for i, split in enumerate(self.values)
            for j, leaf in enumerate(split.leaves)
            if is_number(leaf)
        ]
        self.leaf_keys = [key for key, _ in every]
        return [convert(leaf, dtypes.get(key)) for key, leaf in every]

    def select_outputs(self, keys: list[tuple[int, int]]) -> Body:
        """Return the body with only these leaves as outputs."""
        outputs = dict(zip(self.leaf_keys, self.body.outputs, strict=True))
        self.body.outputs = [outputs[key] for key in keys]
        return self.body
