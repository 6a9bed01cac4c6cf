"""Keys of the operations of tapes: tapes with equal keys have the same reverse pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, cast

from toolkit import dtypes
from toolkit.autodiff.tape import GradientTape, add_all
from toolkit.backends.memory import device_memories
from toolkit.compiler import distribution_context
from toolkit.core.recorded_calls import RecordedCall
from toolkit.core.tensor import Tensor, backend, state
from toolkit.core.variable import Variable
from toolkit.ir import PRIMITIVES, Node
from toolkit.settings import placement

# Operations of the largest reverse pass with a program or a replay.
MAX_NODES = 2000


class CallKey:
    """Key of the records of a tape, of its targets, its sources and their weights.

    A replay is one record. So it takes little time, but the first calls of a function
    have another key. `OperationKey` describes the same operations in all calls. The key
    is valid until a setting changes.

    Args:
        tape: a tape.
        targets: the differentiated tensors.
        sources: Variables and tensors.
        weights: the weights of the targets; None: ones.

    Attributes:
        key: the key.
        values: the values of the records, the targets, the sources and the weights.
            None in place of a value of a replay that is not stored.
        positions: the position of each value.
    """

    __slots__ = ("_items", "_watched", "key", "positions", "values")

    def __init__(
        self,
        tape: GradientTape,
        targets: Sequence[Tensor],
        sources: Sequence[Any],
        weights: Sequence[Tensor] | None = None,
    ) -> None:
        self._items: list[Any] = []
        self._watched = tape._watched
        self.values: list[Tensor | None] = []
        self.positions: dict[Tensor | None, int] = {}
        for entry in tape._records:
            if isinstance(entry, RecordedCall):
                self._add_call(entry)
            else:
                self._items += (entry.op, attributes_key(entry.attrs))
                self._items += map(self._position, entry.inputs)
                for y in entry.outputs:
                    self.positions[y] = len(self.values)
                    self.values.append(y)
        position, reads = self._position, tape._reads
        self.key = (
            tuple(map(position, targets)),
            tuple(
                [
                    tuple(map(position, reads.get(source, ())))
                    if isinstance(source, Variable)
                    else position(source)
                    for source in sources
                ]
            ),
            weights is None or tuple(map(position, weights)),
            tuple(self._items),
        )

    def read(self, positions: Sequence[int]) -> list[Tensor] | None:
        """Return values; None if the tape does not store one of them.

        Args:
            positions: positions of values.
        """
        values = self.values
        read = [values[i] for i in positions]
        return None if NoneType in map(type, read) else cast(list[Tensor], read)

    def _add_call(self, call: RecordedCall) -> None:
        plan, watched, values = call
        start, count = len(self.values), plan.num_leaves
        indices = range(start, start + len(values))
        self._items += (plan, watched)
        self._items += map(self.positions.setdefault, values[:count], indices)
        self.positions.update(zip(values[count:], indices[count:], strict=True))
        self.values += values

    def _position(self, x: Tensor) -> int:
        position = self.positions.get(x)
        if position is None:
            position = self.positions[x] = len(self.values)
            self.values.append(x)
            self._items.append((x._array.shape, x._dtype, x in self._watched))
        return position


class OperationKey:
    """Key of the operations of a tape, of its targets, its sources and their weights.

    Args:
        tape: a tape.
        targets: the differentiated tensors.
        sources: Variables and tensors.
        weights: the weights of the targets; None: ones.

    Attributes:
        key: the key.
        values: the leaves and the results of the operations, in the order of the key.
        nodes: the operations, with the positions of their operands and results.
        target_indices: the positions of the targets.
        source_indices: the positions of the reads of each source.
        weight_indices: the positions of the weights, or None.
    """

    def __init__(
        self,
        tape: GradientTape,
        targets: Sequence[Tensor],
        sources: Sequence[object],
        weights: Sequence[Tensor] | None = None,
    ) -> None:
        indices: dict[Tensor, int] = {}
        values: list[Tensor] = []
        items: list[Any] = []
        watched = tape._watched

        def index(x: Tensor) -> int:
            number = indices.get(x)
            if number is None:
                number = len(values)
                # Each use of a constant counts as another tensor. A replay of an
                # operation uses one tensor in all calls, Python code a new one, and
                # equal numbers share a tensor.
                if x in watched:
                    indices[x] = number
                values.append(x)
                items.append((x._array.shape, x._dtype, x in watched))
            return number

        self.nodes: list[tuple[Node, list[int], list[int]]] = []
        for node in tape._nodes:
            items.append((node.op, attributes_key(node.attrs)))
            operands = list(map(index, node.inputs))
            items.extend(operands)
            first = len(values)
            for y in node.outputs:
                indices[y] = len(values)
                values.append(y)
            self.nodes.append((node, operands, list(range(first, len(values)))))
        self.target_indices = [index(y) for y in targets]
        self.source_indices = [
            [index(x) for x in tape._tensors_of([source])] for source in sources
        ]
        self.weight_indices = None if weights is None else [index(g) for g in weights]
        self.key = (
            tuple(items),
            tuple(self.target_indices),
            tuple(map(tuple, self.source_indices)),
            weights is None or tuple(self.weight_indices or ()),
            backend(),
            placement(),
        )
        self.values = values


def attributes_key(attrs: Mapping[str, object]) -> tuple[object, ...]:
    """Return attributes as a key; 0.0 and -0.0, and 1 and 1.0, are different."""
    if not attrs:
        return ()
    return tuple(
        [
            (name, type(value), value.hex() if type(value) is float else value)
            for name, value in attrs.items()
        ]
    )


def reverse_on(
    tape: GradientTape, record: OperationKey, inputs: Sequence[Tensor]
) -> list[Any]:
    """Return the gradients of sources by the pass in Python, for other values.

    Args:
        tape: the tape with the operations.
        record: the key of the operations.
        inputs: the tensors to use for the values of the key.
    """

    def local(indices: Sequence[int]) -> list[Tensor]:
        return [inputs[i] for i in indices]

    shadow = GradientTape(watch_accessed_variables=False)
    shadow._records = [
        Node(node.op, local(operands), node.attrs, local(results))
        for node, operands, results in record.nodes
    ]
    shadow._watched = {
        inputs[i] for i, x in enumerate(record.values) if x in tape._watched
    }
    reads = list(map(local, record.source_indices))
    weights = record.weight_indices
    gradients = shadow.gradient(
        local(record.target_indices),
        [x for tensors in reads for x in tensors],
        None if weights is None else local(weights),
    )
    totals, position = [], 0
    for tensors in reads:
        terms = gradients[position : position + len(tensors)]
        position += len(tensors)
        totals.append(add_all([g for g in terms if g is not None]))
    return totals


def require_values(
    tape: GradientTape,
    call: CallKey,
    record: OperationKey,
    indices: Iterable[int],
) -> list[int]:
    """Let later calls store the values that a reverse pass reads.

    The calls are those of the replays on the tape.

    Args:
        tape: a tape.
        call: the key of its records, with all values.
        record: the key of its operations.
        indices: the indices of the values in `record`.

    Returns:
        The positions of the values.
    """
    values = [record.values[i] for i in indices]
    read = set(values)
    for entry in tape._records:
        if isinstance(entry, RecordedCall):
            entry.plan.need([i for i, x in enumerate(entry.values) if x in read])
    return [call.positions[x] for x in values]


def is_possible(tape: GradientTape, targets: Sequence[object]) -> bool:
    """Return whether the reverse pass of a tape needs no Python code of a scope.

    Args:
        tape: a tape.
        targets: the differentiated tensors.
    """
    if state.tapes or state.trace is not None or state.overlay is not None:
        return False
    if state.marks or device_memories or distribution_context.current() is not None:
        return False
    if type(tape) is not GradientTape and (
        type(tape)._pull_back is not GradientTape._pull_back
    ):
        return False  # it observes the pass
    for y in targets:
        if type(y) is not Tensor or y._dtype not in dtypes.FLOATS:
            return False
    return 0 < len(tape._records) <= MAX_NODES


def has_registered_operations(tape: GradientTape) -> bool:
    """Return whether a tape has few operations, and none of a user.

    Args:
        tape: a tape.
    """
    nodes = tape._nodes
    if len(nodes) > MAX_NODES or backend().is_accelerator:
        return False
    return all(PRIMITIVES.get(node.op.name) is node.op for node in nodes)
