"""Primitive: one record per operation."""

from __future__ import annotations

from enum import Enum
from typing import Any

from toolkit.definitions.records import record
from toolkit.ir.axes import AxesRule
from toolkit.ir.scalars import EVERYWHERE, Interval, Rule, arity, summarize_rule


class Kind(Enum):
    """Category of a primitive: it defines the assumptions that a pass may make."""

    ELEMENTWISE = "elementwise"  # broadcasts; out[i] depends on inputs[i] only
    REDUCE = "reduce"
    VIEW = "view"  # the output shares its input's buffer
    MOVE = "move"  # copies elements without arithmetic
    INDEX = "index"
    CONTRACT = "contract"  # matmul, convolution
    POOL = "pool"
    SORT = "sort"
    RANDOM = "random"
    CONTROL = "control"  # holds sub-graphs
    COLLECTIVE = "collective"  # exchanges data with other processes
    COMPOSITE = "composite"  # has a body in other primitives


@record(eq=False)
class Primitive:
    """Definition of an operation: all properties that toolkit uses.

    spec: (*input specs, **attrs) -> Spec, or a tuple of them.
    vjp: (g, y, *inputs, **attrs) -> gradient (one input) or a tuple of them; or a tuple
        of such functions, one per input (None: no gradient flows to that input); or
        None: not differentiable. With several outputs, g and y are tuples.
    scalar: for elementwise primitives, the function of one element, in the vocabulary
        that each code generator implements (`toolkit.ir.scalars`).
    body: for composites, the function of tensors that defines it. graph: for
    composites, (specs, attrs) -> the body as a graph. array: the function of arrays
    that computes it where a backend has no kernel, as `array(xp, *arrays, **attrs)`,
    where xp is NumPy or a compatible module. Elementwise primitives need none, because
    they have the scalar rule.
    cost: approximate cost of one element of the result, in additions. domain: the range
    of the first input for which the result is not NaN. axes: correspondence between the
    axes of operands and results (`toolkit.ir.axes`); None: no axis may be split. It is
    a string, or a function that returns one for the specs of operands and the
    attributes.
    combined: the reduction that combines results for parts of an axis that no result
        has: "sum", "prod", "max" or "min".
    initial_operand: the index of the operand that is the initial value of such a
        reduction, and counts only once.
    """

    name: str
    kind: Kind
    spec: Rule
    vjp: Rule | tuple[Rule | None, ...] | None = None
    scalar: Rule | None = None
    body: Rule | None = None
    graph: Rule | None = None
    array: Rule | None = None
    cost: int = 1
    domain: Interval = EVERYWHERE
    axes: AxesRule | None = None
    combined: str = "sum"
    initial_operand: int | None = None

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


PRIMITIVES: dict[str, Primitive] = {}


def primitive(name: str, kind: Kind, spec: Rule, **rules: Any) -> Primitive:
    """Declare a primitive and add it to the registry.

    The cost and the domain of a scalar rule are derived from its functions.
    """
    if name in PRIMITIVES:
        raise ValueError(f"primitive {name!r} is declared twice")
    if "scalar" in rules:
        summary = summarize_rule(rules["scalar"], ("",) * arity(rules["scalar"]))
        rules = {"cost": max(1, summary.cost), "domain": summary.domain} | rules
    PRIMITIVES[name] = record = Primitive(name, kind, spec, **rules)
    return record
