"""Scheduling: the order of the trace, except that nodes that free memory run early."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence

from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Value
from toolkit.ir.extents import value_of
from toolkit.plans.loops.iteration_space import is_elementwise

Updates = Sequence[tuple[int, int | None]]


def schedule(graph: Graph, target: Target) -> Graph:
    """Run nodes that free at least as much memory as they allocate early.

    For example, the update of an optimizer runs as soon as its gradient is computed,
    and the gradient need not live until the end of the step. All other nodes keep the
    order of the trace.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    producers = graph.producers()
    readers: defaultdict[Node, list[Node]] = defaultdict(list)
    waiting: Counter[Node] = Counter()
    uses: Counter[Value] = Counter(graph.outputs)
    for node in graph.nodes:
        for source in {producers[x] for x in node.inputs if x in producers}:
            readers[source].append(node)
            waiting[node] += 1
        uses.update(set(node.inputs))

    emitted: set[Node] = set()
    order: list[Node] = []

    def frees_memory(node: Node) -> bool:
        # The wait for a collective stays as late as in the trace.
        if node.op.kind in (Kind.VIEW, Kind.CONTROL, Kind.COLLECTIVE):
            return False
        freed: int = sum(
            x.spec.nbytes for x in set(node.inputs) if uses[x] == 1 and x in producers
        )
        allocated: int = sum(y.spec.nbytes for y in node.outputs)
        return bool(0 < value_of(allocated) <= value_of(freed))

    def emit(node: Node) -> None:
        ready = [node]
        while ready:
            current = ready.pop()
            emitted.add(current)
            order.append(current)
            for value in set(current.inputs):
                uses[value] -= 1
            for reader in sorted(readers[current], key=lambda n: -position[n]):
                waiting[reader] -= 1
                is_late = current.op.kind is Kind.COLLECTIVE
                if waiting[reader] == 0 and not is_late and frees_memory(reader):
                    ready.append(reader)

    for node in graph.nodes:
        if node not in emitted:
            emit(node)
    return graph.replace(order)


def sink_updates(graph: Graph, target: Target) -> Graph:
    """Move the nodes that compute updates, and their dependents, to the end.

    All other nodes then read the old values of the Variables, and can fail, before the
    first Variable changes.
    """
    before: list[Node] = []
    after: list[Node] = []
    for node, is_late in zip(
        graph.nodes, _lateness(graph, target.updates), strict=True
    ):
        (after if is_late else before).append(node)
    return graph.replace([*before, *after])


def first_late_index(graph: Graph, updates: Updates) -> int:
    """Return the index of the first node that `updates_last` moved."""
    return len(graph.nodes) - sum(_lateness(graph, updates))


def _lateness(graph: Graph, updates: Updates) -> list[bool]:
    """Return whether each node computes an update, or depends on one that does."""
    late: set[Value] = {graph.outputs[output] for output, _ in updates}
    is_late = []
    for node in graph.nodes:
        is_late.append(any(value in late for value in (*node.inputs, *node.outputs)))
        if is_late[-1]:
            late.update(node.outputs)
    return is_late


# Operations with an error for some elements of their operands. A scatter is checked
# separately.
_FALLIBLE = frozenset(
    ("gather", "take_along_axis", "cholesky", "solve", "solve_triangular")
)


def copy_unsafe_updates(graph: Graph, target: Target) -> Graph:
    """Copy new values last where their nodes may not overwrite the old values.

    A node that can fail, and the nodes that it depends on, may not overwrite either. An
    index can be out of range, a matrix singular, and a collective can fail because
    another rank fails. In the body of a loop this applies to collectives only: the loop
    overwrites its state in each iteration.

    Args:
        graph: in execution order.
        target: only generated code overwrites the values that it updates.
    """
    updates = target.updates
    if not (updates and target.generate and target.backend.generator.can_generate):
        return graph
    producers = graph.producers()
    writers = {i: producers[graph.outputs[i]] for i, _ in updates}
    late = set(writers.values())
    readers, early = _late_readers(graph, late), _before_failures(graph, target.is_body)
    checked = _checked_rows(graph, updates)
    nodes, outputs = list(graph.nodes), list(graph.outputs)
    for i, number in updates:
        writer = writers[i]
        settled = writer not in early
        if settled and number is not None:
            old = graph.inputs[number]
            is_only_reader = readers[old] <= {(writer, old)}
            settled = is_only_reader and (
                is_elementwise(writer, old) or _is_slice_update(writer, old, checked)
            )
        if not settled:
            copy = Value(outputs[i].spec)
            identity = PRIMITIVES["stop_gradient"]
            nodes.append(Node(identity, (outputs[i],), {}, (copy,)))
            outputs[i] = copy
    return graph.replace(nodes, outputs)


# Indices, the axis that they index, and its extent.
Rows = tuple[Value, int, int]


def _is_slice_update(writer: Node, old: Value, checked: Container[Rows]) -> bool:
    """Return whether a node writes parts of its first operand, and cannot fail.

    Such a node may write in place and leave all other elements unchanged. A slice start
    outside the array is clamped, so the box is always inside.
    """
    x, *other_inputs = writer.inputs
    if x is not old or any(other is old for other in other_inputs):
        return False
    if writer.op.name == "dynamic_update_slice":
        return True
    return writer.op.name == "scatter" and _rows_of(writer) in checked


def _checked_rows(graph: Graph, updates: Updates) -> set[Rows]:
    """Return the rows that are read before the first update: their indices are valid.

    A collective checks the indices that it gathers.
    """
    pairs = zip(graph.nodes, _lateness(graph, updates), strict=True)
    early = [node for node, late in pairs if not late]
    rows = {_rows_of(node) for node in early if node.op.name == "gather"}
    for node in early:
        indices = zip(node.outputs, node.attrs.get("extents", ()), strict=False)
        rows.update((y, 0, extent) for y, extent in indices if extent is not None)
    return rows


def _rows_of(node: Node) -> Rows:
    """Return the rows that a gather reads, or a scatter writes."""
    axis = node.attrs["axis"]
    return node.inputs[1], axis, node.inputs[0].spec.shape[axis]


def _can_fail(node: Node, is_body: bool) -> bool:
    """Return whether a node can raise an error: for its elements, or another rank."""
    if is_body or node.op.kind is Kind.COLLECTIVE:
        return node.op.kind is Kind.COLLECTIVE
    members = node.attrs["body"].nodes if node.op.name == "fused" else (node,)
    return any(member.op.name in _FALLIBLE for member in members)


def _before_failures(graph: Graph, is_body: bool) -> set[Node]:
    """Return the nodes that can fail, and the nodes that they depend on."""
    ancestors: set[Node] = set()
    needed: set[Value] = set()
    for node in reversed(graph.nodes):
        if _can_fail(node, is_body) or any(y in needed for y in node.outputs):
            ancestors.add(node)
            needed.update(node.inputs)
    return ancestors


def _late_readers(
    graph: Graph, late: set[Node]
) -> defaultdict[Value, set[tuple[Node, Value]]]:
    """Return the late nodes, and their dependents, that read each value.

    Each node is paired with the operand that it reads: the value, or a view of it.
    """
    readers: defaultdict[Value, set[tuple[Node, Value]]] = defaultdict(set)
    sources: dict[Value, Value] = {}  # the source of each view
    late_values: set[Value] = set()
    for node in graph.nodes:
        is_late = node in late or any(x in late_values for x in node.inputs)
        if is_late:
            late_values.update(node.outputs)
        for x in node.inputs:
            source = sources.get(x, x)
            if node.op.kind is Kind.VIEW:
                sources[node.outputs[0]] = source
            elif is_late:
                readers[source].add((node, x))
    return readers
