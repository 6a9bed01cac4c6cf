"""The one intermediate representation: Spec, Primitive, Node, Graph.

The same `Node` is the tape's entry, the graph's node and the functional model's
node. A `Graph` is a pure value: a pass takes one and returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.ir.scalars import EVERYWHERE, Interval, Rule, arity, said


class Spec:
    """The shape and dtype of a tensor. Immutable and hashable."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Iterable[int], dtype: str) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.dtype: str = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * dtypes.itemsize(self.dtype)

    def with_shape(self, shape: Iterable[int]) -> Spec:
        """The same dtype with another shape."""
        return Spec(shape, self.dtype)

    def with_dtype(self, dtype: str) -> Spec:
        """The same shape with another dtype."""
        return Spec(self.shape, dtype)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and self.shape == other.shape
            and self.dtype == other.dtype
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Kind(Enum):
    """What a pass may assume about a primitive."""

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
    COMPOSITE = "composite"  # has a body in other primitives


@dataclass(frozen=True, eq=False, slots=True)
class Primitive:
    """One record per operation: all that any part of toolkit knows about it.

    spec: (*input specs, **attrs) -> Spec, or a tuple of them.
    vjp: (g, y, *inputs, **attrs) -> gradient (one input) or a tuple of them; or a tuple
        of such functions, one per input (None: no gradient flows to that input); or
        None: not differentiable. With several outputs, g and y are tuples.
    scalar: for elementwise primitives, the function of one element, written in the
        vocabulary that each code generator implements (`toolkit.ir.scalars`).
    body: for composites, the function of tensors that defines it.
    array: the function of arrays that computes it where a backend has no kernel, as
        `array(xp, *arrays, **attrs)`, xp being NumPy or a module like it. What is
        elementwise needs none: the scalar rule says it.
    cost: of one element of the result, roughly, in additions.
    domain: where the first input may lie for a result that is a number.
    """

    name: str
    kind: Kind
    spec: Rule
    vjp: Rule | tuple[Rule | None, ...] | None = None
    scalar: Rule | None = None
    body: Rule | None = None
    array: Rule | None = None
    cost: int = 1
    domain: Interval = EVERYWHERE

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


PRIMITIVES: dict[str, Primitive] = {}


def primitive(name: str, kind: Kind, spec: Rule, **rules: Any) -> Primitive:
    """Declare a primitive and enter it into the registry.

    What a scalar rule costs, and where it is defined, follow from its words.
    """
    if name in PRIMITIVES:
        raise ValueError(f"primitive {name!r} is declared twice")
    if "scalar" in rules:
        found = said(rules["scalar"], ("",) * arity(rules["scalar"]))
        rules = {"cost": max(1, found.cost), "domain": found.domain} | rules
    PRIMITIVES[name] = record = Primitive(name, kind, spec, **rules)
    return record


class Value:
    """What flows along the edges of a graph.

    A value is itself and no other, whatever its spec: what a pass knows of values is in
    dicts and sets of them. A `Tensor` is one that may have data and has operators; its
    `==` compares elements, so no list or tuple of values is searched by `in`.
    """

    __slots__ = ("__weakref__", "_is_open", "_origin", "_spec")
    _spec: Spec | None
    _origin: tuple[str, ...]  # set only inside a scope
    _is_open: bool  # set only of what follows from extents

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    @property
    def spec(self) -> Spec:
        """Its shape and dtype."""
        return self._spec  # type: ignore[return-value]

    @property
    def constant(self) -> Any:
        """The array of a value known at compile time, else None."""
        return None

    @property
    def origin(self) -> tuple[str, ...]:
        """The name scopes, of layers say, that it was traced in."""
        return getattr(self, "_origin", ())

    @property
    def is_open(self) -> bool:
        """Whether it is a constant that would be another one for other extents."""
        return getattr(self, "_is_open", False)

    def __repr__(self) -> str:
        return f"<value {self.spec}>"


class Constant(Value):
    """A value that the compiler knows.

    Args:
        array: its data, in host memory.
        is_open: whether the data would be others for other extents.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any, is_open: bool = False) -> None:
        super().__init__(Spec(array.shape, dtypes.NAMES[array.dtype]))
        self._array = array
        self._is_open = is_open

    @property
    def constant(self) -> Any:
        return self._array


class Node:
    """One application of an operation: op(*inputs, **attrs) -> outputs.

    device: where the user wants it computed, None: wherever its inputs are.
    """

    __slots__ = ("attrs", "device", "inputs", "op", "outputs")

    def __init__(
        self,
        op: Any,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        outputs: Sequence[Any],
        device: str | None = None,
    ) -> None:
        self.op: Any = op
        self.device: str | None = device
        self.inputs: tuple[Any, ...] = tuple(inputs)
        self.attrs: Mapping[str, Any] = attrs
        self.outputs: tuple[Any, ...] = tuple(outputs)

    @property
    def origin(self) -> str:
        """The path of the layer that it was traced in; "" where that is not known."""
        values = list(self.outputs)
        for graph in self.subgraphs:  # of a fused node: the last of its nodes
            values += [y for node in reversed(graph.nodes) for y in node.outputs]
        found = (y.origin for y in values)
        return "/".join(next(filter(None, found), ()))

    def with_inputs(self, inputs: Sequence[Any]) -> Node:
        """The same application to other inputs, defining the same outputs."""
        return Node(self.op, inputs, self.attrs, self.outputs, self.device)

    @property
    def subgraphs(self) -> list[Graph]:
        """The graphs that a control primitive holds among its attributes."""
        return [value for value in self.attrs.values() if isinstance(value, Graph)]


@dataclass(frozen=True, eq=False)
class Graph:
    """A pure function in static single assignment form.

    Every value is defined once: as one of `inputs`, by a node, or as a constant that
    carries its data with it. `names` maps a value to a name to print.
    """

    inputs: tuple[Any, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    names: Mapping[Value, str] = field(default_factory=dict)

    def replace(
        self,
        nodes: Iterable[Node] | None = None,
        outputs: Iterable[Any] | None = None,
    ) -> Graph:
        """The same graph with other nodes or outputs."""
        return Graph(
            self.inputs,
            self.nodes if nodes is None else tuple(nodes),
            self.outputs if outputs is None else tuple(outputs),
            self.names,
        )

    def producers(self) -> dict[Value, Node]:
        """The node that defines each value."""
        return {out: node for node in self.nodes for out in node.outputs}

    def last_uses(self) -> dict[Value, int]:
        """The index of the last node that reads each value; outputs live to the end."""
        last = {v: i for i, node in enumerate(self.nodes) for v in node.inputs}
        last.update((v, len(self.nodes)) for v in self.outputs)
        return last

    def walk(self) -> Iterator[Node]:
        """Every node, those of sub-graphs included."""
        for node in self.nodes:
            yield node
            for graph in node.subgraphs:
                yield from graph.walk()

    def slice(self, feeds: Sequence[Any], fetches: Sequence[Any]) -> Graph:
        """The part that computes `fetches` when `feeds` are given.

        Any value may be fed or fetched. Inputs of this graph that are still needed
        come after the feeds.
        """
        fed = set(feeds)
        producers = self.producers()
        needed: set[Value] = set()
        stack = [value for value in fetches if value not in fed]
        while stack:
            value = stack.pop()
            if value in needed:
                continue
            needed.add(value)
            node = producers.get(value)
            if node is not None:
                stack += [v for v in node.inputs if v not in fed]
        inputs = [*feeds, *(v for v in self.inputs if v in needed)]
        nodes = [n for n in self.nodes if any(v in needed for v in n.outputs)]
        return Graph(tuple(inputs), tuple(nodes), tuple(fetches), self.names)

    def run(self, fetches: Sequence[Any], feeds: Mapping[Any, Any]) -> list[Any]:
        """Compute any values of the graph from any others; only what is needed runs.

        Args:
            fetches: values of the graph to compute.
            feeds: arrays or tensors by the value that they stand for.

        Returns:
            One tensor for each fetch.

        Raises:
            ArgumentError: a fetch needs inputs that are not fed.
            ShapeError: what is fed has another shape than the value.
        """
        compiler: Any = import_module("toolkit.compiler.evaluate")
        return compiler.evaluate(self, fetches, feeds)  # type: ignore[no-any-return]

    def verify(self) -> None:
        """Check that all is defined once, before use, with the specs of the rules.

        Raises:
            AssertionError: naming the node that breaks one.
        """
        defined = set(self.inputs)
        for node in self.nodes:
            for value in node.inputs:
                known = value in defined or value.constant is not None
                assert known, f"{node.op}: reads a value that nothing defines"
            assert len(node.inputs) == 0 or node.op is not None
            expected = node.op.spec(*(v.spec for v in node.inputs), **node.attrs)
            specs = expected if isinstance(expected, tuple) else (expected,)
            found = tuple(value.spec for value in node.outputs)
            assert specs == found, f"{node.op}: expected {specs}, found {found}"
            for value in node.outputs:
                assert value not in defined, f"{node.op}: defines a value again"
                defined.add(value)
        for value in self.outputs:
            known = value in defined or value.constant is not None
            assert known, "an output is never defined"

    def __str__(self) -> str:
        return format_graph(self)


def format_graph(graph: Graph, marks: Mapping[Node, str] | None = None) -> str:
    """The graph as text, one line per node: `%3: float32[2, 5] = matmul(x, w)`.

    Args:
        graph: what to show.
        marks: what to write before each of its nodes.
    """
    names = dict(graph.names)

    def name(value: Any) -> str:
        if value in names:
            return names[value]
        if value.constant is not None and value.spec.size == 1:
            return str(value.constant.reshape(())[()])
        kind = "const " if value.constant is not None else "?"
        return f"{kind}{value.spec}"

    for i, value in enumerate(graph.inputs):
        names.setdefault(value, f"%in{i}")
    signature = ", ".join(f"{name(v)}: {v.spec}" for v in graph.inputs)
    lines = [f"graph({signature})"]
    count = 0
    marks = marks or {}
    margin = " " * max(map(len, marks.values()), default=0)

    def write(node: Node, indent: str) -> None:
        nonlocal count
        indent = marks.get(node, margin) + indent
        if node.op.name == "fused":
            lines.append(f"{indent}one loop:")
            for member in node.attrs["body"].nodes:
                write(member, indent[len(margin) :] + "  ")
            return
        for value in node.outputs:
            names[value] = f"%{count}"
            count += 1
        targets = ", ".join(f"{name(v)}: {v.spec}" for v in node.outputs)
        attrs = "".join(f", {k}={_brief(v)}" for k, v in node.attrs.items())
        inputs = ", ".join(name(v) for v in node.inputs)
        lines.append(f"{indent}{targets} = {node.op.name}({inputs}{attrs})")

    for node in graph.nodes:
        write(node, "  ")
    lines.append(f"  return {', '.join(name(v) for v in graph.outputs)}")
    return "\n".join(lines)


def _brief(attribute: Any) -> str:
    if isinstance(attribute, Graph):
        return f"<graph of {len(attribute.nodes)} nodes>"
    return str(attribute)
