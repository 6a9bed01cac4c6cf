"""Propagation: select the sharding of every value of a graph from its inputs.

One walk over the nodes in order. A node follows its sharded operand: the letter of that
axis in the axis rule is split, in all operands and results that have it. If no result
has the letter, the results are partial. They are combined where they are read, or
directly into the sharding of the outputs that they lead to. Weights that are sharded
only for storage are gathered where a node with another sharded operand reads them. A
composite stays one node if its body needs no collective, and is expanded otherwise. A
node that cannot be split is computed by every rank on whole operands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

from toolkit.compiler.sharding.choices import (
    EXCHANGE,
    Choice,
    ShardedGraph,
    operation_in_shard,
)
from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Partial, Split, reshaped
from toolkit.compiler.sharding.leaf_sums import choose_leaf_sums
from toolkit.compiler.sharding.partition import partition
from toolkit.errors import ToolkitError
from toolkit.ir import Axes, Graph, Kind, Node, Spec, Value, axes_of

# With one operand, these map terms of the operand to terms of the result without
# rounding.
_EXACT = {"reshape", "transpose", "slice", "broadcast_to", "stop_gradient", "negative"}


def propagate(
    graph: Graph,
    axis: MeshAxis,
    inputs: Sequence[Layout],
    requested: Sequence[Layout] | None = None,
    stored: Collection[int] = (),
) -> ShardedGraph:
    """Select the sharding of every value over the ranks of a mesh axis.

    Args:
        graph: graph with global shapes.
        axis: axis of the mesh.
        inputs: shardings of its inputs.
        requested: shardings of its outputs; None: whole.
        stored: indices of inputs that are sharded only to save memory.
    """
    output_layouts = (
        [None] * len(graph.outputs) if requested is None else list(requested)
    )
    walk = _Walk(axis, dict(zip(graph.inputs, inputs, strict=True)))
    walk.stored.update(graph.inputs[number] for number in stored)
    walk.demands = _demands(graph, output_layouts)
    walk.visit(graph.nodes)
    outputs = list(map(walk.replacement_of, graph.outputs))
    sharded = graph.replace([c.node for c in walk.choices], outputs)
    return ShardedGraph(
        sharded, walk.choices, walk.layouts, output_layouts, walk.stored
    )


def _demands(graph: Graph, requested: Sequence[Layout]) -> dict[Value, Split]:
    """Return the shardings that sharded outputs require of the values before them.

    Follow elementwise nodes only: from the new value of a variable back to its
    gradient.
    """
    demands = {
        y: layout
        for y, layout in zip(graph.outputs, requested, strict=True)
        if isinstance(layout, Split)
    }
    for node in reversed(graph.nodes) if demands else ():
        layout = demands.get(node.outputs[0])
        if layout is not None and node.op.kind is Kind.ELEMENTWISE:
            for x in node.inputs:
                if x.spec.shape == node.outputs[0].spec.shape:
                    demands.setdefault(x, layout)
    return demands


class _Walk:
    """Shardings of the values visited so far."""

    # Cached result shardings of composites, by specs, attributes and operand shardings.
    composites: ClassVar[dict[Any, list[Layout] | None]] = {}

    def __init__(self, axis: MeshAxis, layouts: dict[Value, Layout]) -> None:
        self.axis = axis
        self.layouts = layouts
        self.choices: list[Choice] = []
        # Values that are sharded for storage, and the values that depend on them only.
        self.stored: set[Value] = set()
        # Shardings into which sums are combined directly.
        self.demands: dict[Value, Split] = {}
        # Replacements for the results of expanded composites.
        self.replacements: dict[Value, Value] = {}

    def visit(self, nodes: Sequence[Node]) -> None:
        """Select the sharding of each node."""
        for node in nodes:
            node = node.with_inputs(list(map(self.replacement_of, node.inputs)))
            choice = self.choose(node)
            if choice is None:
                self.visit(list(self._members(node)))
                continue
            self.choices.append(choice)
            for y, layout in zip(node.outputs, choice.outputs, strict=True):
                combined = isinstance(layout, Partial) and y in self.demands
                self.layouts[y] = self.demands[y] if combined else layout
            self._store(node, choice)

    def _store(self, node: Node, choice: Choice) -> None:
        """Record results that are sharded only because of sharded storage."""
        if not self.stored:
            return
        if choice.inputs and operation_in_shard(node, choice.inputs[0]) is not None:
            return  # the rows are split like the indices
        pairs = zip(node.inputs, choice.inputs, strict=True)
        split = [x for x, layout in pairs if isinstance(layout, Split)]
        if split and all(x in self.stored for x in split):
            self.stored.update(node.outputs)

    def replacement_of(self, value: Value) -> Value:
        """Return the replacement of a value."""
        while value in self.replacements:
            value = self.replacements[value]
        return value

    def of(self, value: Value) -> Layout:
        """Return the sharding of a value; constants are whole."""
        return None if value.constant is not None else self.layouts.get(value)

    def choose(self, node: Node) -> Choice | None:
        """Return the sharding of a node, or None if it must be expanded."""
        inputs = [self.of(x) for x in node.inputs]
        leaf_sums = choose_leaf_sums(node, inputs, self.axis)
        if leaf_sums is not None:
            return leaf_sums
        replicated = Choice(node, [None] * len(inputs), [None] * len(node.outputs))
        is_demanded = node.op.name == "scatter" and node.outputs[0] in self.demands
        if all(layout is None for layout in inputs) and not is_demanded:
            return replicated
        if node.op.kind is Kind.COLLECTIVE:
            return _other_axis_collective(node, inputs) or replicated
        if node.op.name == EXCHANGE:
            return replicated
        choice = self._in_shard(node, inputs)
        if choice is not None:
            return choice
        if node.op.name == "transpose" and node.inputs[0] in self.stored:
            # A gather before the transposition is a view of the same array as in other
            # readers. Libraries for GPUs can round other layouts differently.
            return replicated
        if node.op.kind in (Kind.CONTROL, Kind.COMPOSITE):
            inputs = self._gathered(node, inputs)
        if node.op.kind is Kind.CONTROL:
            # A sum is complete before a branch, whose other operands stay shards.
            inputs = [None if isinstance(x, Partial) else x for x in inputs]
            return control(node, inputs, self.axis) or replicated
        if any(isinstance(layout, Partial) for layout in inputs):
            choice = _of_terms(node, inputs)
            if choice is not None:
                return choice
            inputs = [None if isinstance(x, Partial) else x for x in inputs]
            if all(layout is None for layout in inputs):
                return replicated
        if node.op.kind is Kind.COMPOSITE:
            return self._composite(node, inputs)
        if node.op.name == "reshape":
            return self._reshape(node, inputs) or replicated
        return self._cut(node, inputs) or replicated

    def _cut(self, node: Node, inputs: Sequence[Layout]) -> Choice | None:
        """Follow a sharded operand: the one for which the fewest bytes are gathered."""
        if node.op.axes is None:
            return None
        specs = [x.spec for x in node.inputs]
        outputs = [y.spec for y in node.outputs]
        axes = axes_of(node.op.axes, specs, outputs, node.attrs)
        best, least_nbytes = None, 0
        moving = self._gathered(node, inputs)
        follow = moving if any(isinstance(x, Split) for x in moving) else inputs
        for number, layout in enumerate(follow):
            if not isinstance(layout, Split):
                continue
            choice = self._along(node, axes, number, layout)
            if choice is None:
                continue
            if self._gathers_rows(choice):
                return None
            nbytes: int = sum(
                x.spec.nbytes
                for x, have, take in zip(
                    node.inputs, inputs, choice.inputs, strict=True
                )
                if have is not None and have != take
            )
            if best is None or nbytes < least_nbytes:
                best, least_nbytes = choice, nbytes
        return best

    def _gathers_rows(self, choice: Choice) -> bool:
        """Return whether ranks gather the terms of a sum instead of their sums.

        A sum over the batch that is added to rows of a table has the size of the table.
        If the rows have fewer bytes, all ranks gather the rows, and add them in the
        order of the batch. The shapes of the whole batch decide, so that all ranks
        decide the same.
        """
        (result, *_), op = choice.outputs, choice.node.op
        is_sum = isinstance(result, Partial) and op.initial_operand is not None
        if not is_sum or not self.axis.can_gather:
            return False
        pairs = zip(choice.node.inputs, choice.inputs, strict=True)
        nbytes: int = sum(x.spec.nbytes for x, layout in pairs if layout is not None)
        # A sum over the ranks sends about two times its bytes, but there is one message
        # for the sums of all weights.
        table_nbytes: int = choice.node.outputs[0].spec.nbytes
        return 2 * nbytes <= table_nbytes

    def _in_shard(self, node: Node, inputs: Sequence[Layout]) -> Choice | None:
        """Look up or update rows in the shards of a table; None: in the whole table.

        Ranks look up the indices of all ranks in their shard. The sum over the ranks is
        the rows.
        """
        layout = inputs[0]
        if node.op.name == "scatter":
            layout = layout or self.demands.get(node.outputs[0])
        if operation_in_shard(node, layout) is None or not self.axis.can_gather:
            return None
        assert isinstance(layout, Split)
        table, *others = node.inputs
        rows = others if node.op.name == "scatter" else node.outputs
        nbytes = sum(x.spec.nbytes for x in rows)
        if 2 * nbytes > table.spec.nbytes or table.spec.dtype == "bool":
            return None
        takes: list[Layout] = [layout, *[None] * len(others)]
        if node.op.name == "scatter":
            return Choice(node, takes, [layout])
        if isinstance(inputs[1], Split):  # the rows are split like the indices
            self.demands.setdefault(node.outputs[0], inputs[1])
        return Choice(node, takes, [Partial("sum", layout.units(table.spec))])

    def _gathered(self, node: Node, inputs: Sequence[Layout]) -> list[Layout]:
        """Return the operand shardings after gathers of values sharded for storage."""
        pairs = zip(node.inputs, inputs, strict=True)
        return [None if x in self.stored else layout for x, layout in pairs]

    def _along(
        self, node: Node, axes: Axes, number: int, layout: Split
    ) -> Choice | None:
        """Split the letter along which an operand is sharded."""
        letter = axes.inputs[number][layout.axis]
        if letter is None:
            return None
        takes = [_layout_of_letter(letter, letters, layout) for letters in axes.inputs]
        gives: list[Layout] = [
            _layout_of_letter(letter, letters, layout) for letters in axes.outputs
        ]
        units = layout.units(node.inputs[number].spec)
        pairs = [*zip(node.inputs, takes, strict=True)]
        pairs += zip(node.outputs, gives, strict=True)  # type: ignore[arg-type]
        if any(split and split.units(v.spec) != units for v, split in pairs):
            return None
        if axes.is_summed(letter):
            gives = [Partial(node.op.combined, units)] * len(gives)
        elif None in gives:
            return None
        return Choice(node, takes, gives)

    def _reshape(self, node: Node, inputs: Sequence[Layout]) -> Choice | None:
        (layout,) = inputs
        assert isinstance(layout, Split)
        shapes = node.inputs[0].spec.shape, node.outputs[0].spec.shape
        layout_after = reshaped(layout, *shapes)
        return None if layout_after is None else Choice(node, [layout], [layout_after])

    def _composite(self, node: Node, inputs: Sequence[Layout]) -> Choice | None:
        """Keep a composite whole if its split body equals its body for local shapes."""
        specs = tuple(x.spec for x in node.inputs)
        key = node.op, specs, repr(node.attrs), tuple(inputs)
        if key not in self.composites:
            self.composites[key] = self._composite_layouts(node, specs, inputs)
        outputs = self.composites[key]
        return None if outputs is None else Choice(node, inputs, outputs)

    def _composite_layouts(
        self, node: Node, specs: Sequence[Spec], inputs: Sequence[Layout]
    ) -> list[Layout] | None:
        """Return the shardings of a composite's results; None: expand it."""
        body = node.op.graph(specs, node.attrs)
        inner = _Walk(self.axis, dict(zip(body.inputs, inputs, strict=True)))
        inner.visit(body.nodes)
        outputs_in_body = [inner.replacement_of(y) for y in body.outputs]
        outputs = [inner.of(y) for y in outputs_in_body]
        if any(isinstance(y, Partial) for y in outputs) or not inner.is_local():
            return None
        graph = body.replace([c.node for c in inner.choices], outputs_in_body)
        sharded = ShardedGraph(graph, inner.choices, inner.layouts, outputs)
        axis = _OneUnitAxis(self.axis)
        local = partition(sharded, axis, inputs)
        try:
            body = node.op.graph([x.spec for x in local.inputs], node.attrs)
        except ToolkitError:
            return None
        return outputs if _is_same(local, body) else None

    def is_local(self) -> bool:
        """Return whether no choice needs a collective."""
        return not any(
            have is not None and have != take
            for choice in self.choices
            for have, take in zip(
                map(self.of, choice.node.inputs), choice.inputs, strict=True
            )
        )

    def _members(self, node: Node) -> Iterator[Node]:
        """Yield the nodes of a composite's body, with new values."""
        body = node.op.graph((x.spec for x in node.inputs), node.attrs)
        values: dict[Value, Value] = dict(zip(body.inputs, node.inputs, strict=True))
        for member in body.nodes:
            outputs = [Value(y.spec) for y in member.outputs]
            for y, new_output in zip(member.outputs, outputs, strict=True):
                if node.outputs[0].origin:
                    new_output._origin = node.outputs[0].origin
                values[y] = new_output
            inputs = [values.get(x, x) for x in member.inputs]
            yield Node(member.op, inputs, member.attrs, outputs, node.device)
        for y, body_output in zip(node.outputs, body.outputs, strict=True):
            self.replacements[y] = values.get(body_output, body_output)


def _layout_of_letter(letter: Any, letters: Sequence[Any], like: Split) -> Split | None:
    """Return the sharding of a value that has a letter, or None if it is whole."""
    return like._replace(axis=letters.index(letter)) if letter in letters else None


def _other_axis_collective(node: Node, inputs: Sequence[Layout]) -> Choice | None:
    """Return the choice for a collective along another mesh axis."""
    splits = {layout for layout in inputs[:-1] if isinstance(layout, Split)}
    if len(splits) != 1:
        return None
    (layout,) = splits
    attrs = node.attrs
    own_splits = [attrs["split"]] if "split" in attrs else attrs.get("splits", ())
    if any(split.axis == layout.axis for split in own_splits):
        return None
    takes = [*[layout] * (len(inputs) - 1), None]
    return Choice(node, takes, [*[layout] * (len(node.outputs) - 1), None])


def _of_terms(node: Node, inputs: Sequence[Layout]) -> Choice | None:
    """Compute terms of a result from terms of the operands, if this is exact."""
    first = inputs[0]
    if not isinstance(first, Partial) or first.op != "sum":
        return None
    size = node.inputs[0].spec.nbytes
    if len(inputs) == 1 and node.op.name in _EXACT:
        smaller = node.outputs[0].spec.nbytes <= size
        return Choice(node, inputs, [first]) if smaller else None
    if node.op.name == "add" and all(x == first for x in inputs):
        same = all(x.spec == node.outputs[0].spec for x in node.inputs)
        return Choice(node, inputs, [first]) if same else None
    return None


class _OneUnitAxis(MeshAxis):
    """Mesh axis of which each rank has one unit of every sharded value."""

    def __init__(self, axis: MeshAxis) -> None:
        super().__init__(axis.name, axis.group, axis.leaves, axis.even)

    def rows(self, units: int, rank: int | None = None) -> range:
        return range(1)


def _is_same(one: Graph, other: Graph) -> bool:
    """Return whether two graphs are equal, node by node."""
    if len(one.nodes) != len(other.nodes):
        return False
    names = dict(zip(one.inputs, other.inputs, strict=True))

    def match(a: Value, b: Value) -> bool:
        if a.constant is None or b.constant is None:
            return names.get(a) is b
        same: bool = a.spec == b.spec and a.constant.tobytes() == b.constant.tobytes()
        return same

    for a, b in zip(one.nodes, other.nodes, strict=True):
        if a.op is not b.op or repr(a.attrs) != repr(b.attrs):
            return False
        if not all(map(match, a.inputs, b.inputs)):
            return False
        names.update(zip(a.outputs, b.outputs, strict=True))
    return all(map(match, one.outputs, other.outputs))


# --- loops and branches ---------------------------------------------------------------


def control(node: Node, inputs: Sequence[Layout], axis: MeshAxis) -> Choice | None:
    """Return the choice for a loop or a branch; None: bodies need collectives."""
    rule = {"scan": _scan, "cond": _cond, "while_loop": _while}[node.op.name]
    return rule(node, list(inputs), axis)


def _shard_body(
    body: Graph, axis: MeshAxis, inputs: Sequence[Layout], requested: Sequence[Layout]
) -> ShardedGraph | None:
    """Shard a body without collectives; its outputs may be slices of whole values."""
    sharded = propagate(body, axis, inputs, requested)
    walk = _Walk(axis, dict(sharded.layouts))
    walk.choices = list(sharded.choices)
    layouts = [walk.of(y) for y in sharded.graph.outputs]
    fits = all(
        have in (want, None) for have, want in zip(layouts, requested, strict=True)
    )
    return sharded if fits and walk.is_local() else None


def _outputs(body: Graph, axis: MeshAxis, inputs: Sequence[Layout]) -> list[Layout]:
    sharded = propagate(body, axis, inputs)
    return [
        None if y.constant is not None else sharded.layouts.get(y)
        for y in sharded.graph.outputs
    ]


def _carried(
    body: Graph, axis: MeshAxis, inputs: list[Layout], count: int
) -> list[Layout] | None:
    """Return the output shardings of a loop body; adjust `inputs` to the carry."""
    for _ in range(count + 1):
        outputs = _outputs(body, axis, inputs)
        if any(isinstance(layout, Partial) for layout in outputs):
            return None
        wider = [
            (have if have is not None else new)
            for have, new in zip(inputs[:count], outputs[:count], strict=True)
        ]
        if wider == inputs[:count]:
            return [*wider, *outputs[count:]]
        inputs[:count] = wider
    return None


def _scan(node: Node, inputs: list[Layout], axis: MeshAxis) -> Choice | None:
    n, m, body = node.attrs["carry"], node.attrs["xs"], node.attrs["body"]
    body_layouts: list[Layout] = list(inputs)
    for i in range(n, n + m):
        layout = inputs[i]
        if isinstance(layout, Split):
            if layout.axis == 0:  # the axis of the steps
                return None
            body_layouts[i] = layout._replace(axis=layout.axis - 1)
    outputs = _carried(body, axis, body_layouts, n)
    if outputs is None:
        return None
    sharded = _shard_body(body, axis, body_layouts, outputs)
    stacked = [
        layout._replace(axis=layout.axis + 1) if isinstance(layout, Split) else layout
        for layout in outputs[n:]
    ]
    takes = [*body_layouts[:n], *inputs[n:]]
    gives = [*outputs[:n], *stacked]
    if sharded is None:
        return None
    return Choice(node, takes, gives, {"body": sharded})


def _cond(node: Node, inputs: list[Layout], axis: MeshAxis) -> Choice | None:
    if inputs[0] is not None:
        return None
    names = ("true", "false")
    branch_outputs = [_outputs(node.attrs[name], axis, inputs[1:]) for name in names]
    common_outputs = []
    for a, b in zip(*branch_outputs, strict=True):
        if isinstance(a, Partial) or isinstance(b, Partial) or None not in (a, b, None):
            return None
        common_outputs.append(a or b)
    for a, b in zip(*branch_outputs, strict=True):
        if a is not None and b is not None and a != b:
            return None
    bodies = {}
    for name in names:
        sharded = _shard_body(node.attrs[name], axis, inputs[1:], common_outputs)
        if sharded is None:
            return None
        bodies[name] = sharded
    return Choice(node, inputs, common_outputs, bodies)


def _while(node: Node, inputs: list[Layout], axis: MeshAxis) -> Choice | None:
    n, body_layouts = node.attrs["carry"], list(inputs)
    outputs = _carried(node.attrs["body"], axis, body_layouts, n)
    if outputs is None:
        return None
    body = _shard_body(node.attrs["body"], axis, body_layouts, outputs)
    condition = _shard_body(node.attrs["condition"], axis, body_layouts, [None])
    if body is None or condition is None:
        return None
    return Choice(node, body_layouts, outputs, {"body": body, "condition": condition})
