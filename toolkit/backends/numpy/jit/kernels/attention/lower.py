"""Lowering of attention to calls: array layouts and partition of the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernels.attention import backward, forward, single_query
from toolkit.backends.numpy.jit.kernels.attention.transpose import COLUMNS
from toolkit.backends.numpy.jit.kernels.attention.writer import (
    PACKED,
    AttentionPlan,
    Extra,
    Numbers,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir.extents import is_always, largest, smallest, value_of
from toolkit.plans.operands import Operand, align_up

if TYPE_CHECKING:
    from toolkit.ir import Node

# Keys of a block: their logits stay in the L1 cache.
_FORWARD_KEYS, _BACKWARD_KEYS = 256, 128
# The rows of a head are packed if their stride covers more bytes than this.
_MAX_STRIDED_BYTES = 1 << 17
# The least number of units of work. Fewer units are split further.
_MIN_UNITS = 8
_EXP_COST = 20  # instructions of an exponential, counted as FLOPs


def lower_attention(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower (query, key, value, *extras) -> (out, peak, total)."""
    names = (*forward.INPUTS, *node.attrs["given"], *forward.OUTPUTS)
    return _Lowering(node, names, inputs, outputs).forward()


def lower_attention_grad(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower (g, delta, peak, total, query, key, value, *extras) -> three gradients."""
    names = (*backward.INPUTS, *node.attrs["given"], *backward.OUTPUTS)
    return _Lowering(node, names, inputs, outputs).backward()


class _Lowering:
    """The lowering of one node, with its arrays by name."""

    def __init__(
        self,
        node: Any,
        names: Sequence[str],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> None:
        self.node = node
        self.names = names
        self.arrays = dict(zip(names, (*inputs, *outputs), strict=True))
        self.references: list[Reference] = [("in", i) for i in range(len(inputs))]
        self.references += [("out", i) for i in range(len(outputs))]
        self.dtype = self.arrays["query"].spec.dtype
        self.batch, self.targets, self.query_heads, self.features = self._shape("query")
        self.sources, self.key_heads, self.value_features = self._shape("value")[1:]

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.arrays[name].spec.shape

    def forward(self) -> Lowered | None:
        """Lower the forward pass."""
        plan = self._plan(_FORWARD_KEYS)
        if plan is None:
            return None
        if self.targets == 1:
            return self._lower_single_query(plan)
        code = Code(forward.emit_attention, plan)
        cost = 2 * (self.features + self.value_features) + _EXP_COST
        return self._lower_call(plan, code, sum(forward.scratch(plan)), cost, True)

    def _lower_single_query(self, plan: AttentionPlan) -> Lowered:
        """Lower the forward pass for one query of each head."""
        extras = tuple(
            extra._replace(
                layout="next" if self._has_contiguous_sources(extra.name) else "apart"
            )
            for extra in plan.extras
        )
        plan = replace(plan, extras=extras, rows_apart=(), keys=0, is_packed=False)
        numbers = Numbers(
            targets=1,
            sources=self.sources,
            group=self.query_heads // max(1, self.key_heads),
            head_groups=1,
            heads=self.key_heads,
            pieces=1,
            piece=1,
            scratch=align_up(single_query.scratch_bytes(plan, self.sources)),
        )
        rows = self.batch * self.query_heads
        cost = 2 * (self.features + self.value_features) + _EXP_COST
        call = Call(
            Code(single_query.emit_single, plan),
            (*self.references, ("work", 0)),
            (*numbers, *self._stride_table()),
            rows,
            partition(rows),
            flops=cost * rows * self.sources,
            nbytes=sum(array.spec.nbytes for array in self.arrays.values()),
        )
        return Lowered((call,), call.tasks * numbers.scratch)

    def _has_contiguous_sources(self, name: str) -> bool:
        """Return whether the sources of an array are contiguous."""
        itemsize = dtypes.itemsize(self.arrays[name].spec.dtype)
        return self._strides(name)[3] == itemsize

    def backward(self) -> Lowered | None:
        """Lower the backward pass."""
        plan = self._plan(_BACKWARD_KEYS)
        if plan is None:
            return None
        code = Code(backward.emit_attention_grad, plan)
        cost = 6 * self.features + 4 * self.value_features + _EXP_COST
        return self._lower_call(plan, code, sum(backward.scratch(plan)), cost, False)

    def _plan(self, keys: int) -> AttentionPlan | None:
        if not self._is_supported():
            return None
        attrs = self.node.attrs
        rows = [name for name in ("delta", "peak", "total") if name in self.names]
        return AttentionPlan(
            self.dtype,
            max(COLUMNS, current().lanes * 4 // dtypes.itemsize(self.dtype)),
            self.features,
            self.value_features,
            attrs["scale"],
            attrs["is_causal"],
            tuple(self._extra(name) for name in attrs["given"]),
            tuple(name for name in rows if self._is_strided(name, 2)),
            keys,
            self._has_distant_rows(),
        )

    def _has_distant_rows(self) -> bool:
        """Return whether the rows of a head are too far apart for the cache."""
        row = max(self.arrays[name].strides[1] for name in ("key", "value"))
        nbytes = value_of(row * self.sources)
        return self.key_heads > 1 and nbytes > _MAX_STRIDED_BYTES

    def _is_supported(self) -> bool:
        """Return whether the kernels support the types, layouts and extents."""
        if self.dtype not in ("float32", "float64"):
            return False
        if not (self.sources and self.features and self.value_features):
            return False
        names = [name for name in ("query", "key", "value", "g") if name in self.arrays]
        return not any(self._is_strided(name, 3) for name in names)

    def _is_strided(self, name: str, axis: int) -> bool:
        array = self.arrays[name]
        neighbours = array.strides[axis] == dtypes.itemsize(array.spec.dtype)
        return array.spec.shape[axis] > 1 and array.spec.size > 0 and not neighbours

    def _extra(self, name: str) -> Extra:
        array = self.arrays[name]
        _, _, target, source = self._strides(name)
        neighbours = source == dtypes.itemsize(array.spec.dtype)
        layout = "one" if target == 0 else "next" if neighbours else "apart"
        return Extra(name, array.spec.dtype, layout)

    def _strides(self, name: str) -> list[int]:
        array = self.arrays[name]
        return [
            0 if n == 1 else stride
            for n, stride in zip(array.spec.shape, array.strides, strict=True)
        ]

    def _lower_call(
        self, plan: AttentionPlan, code: Code, lines: int, cost: int, may_split: bool
    ) -> Lowered:
        numbers = self._numbers(plan, lines, may_split)
        rows = self.batch * numbers.head_groups * numbers.pieces
        grain = partition(rows)
        tasks = -(-rows // grain)
        pairs = self.query_heads * self.targets * self.sources
        if plan.causal:
            pairs //= 2
        call = Call(
            code,
            (*self.references, ("work", 0)),
            (*numbers, *self._stride_table()),
            rows,
            grain,
            self._batched_operands() if is_always(rows, self.batch) else frozenset(),
            flops=cost * self.batch * pairs,
            nbytes=sum(array.spec.nbytes for array in self.arrays.values()),
        )
        return Lowered((call,), tasks * numbers.scratch)

    def _numbers(self, plan: AttentionPlan, lines: int, may_split: bool) -> Numbers:
        head_groups = 1 if self.batch >= _MIN_UNITS else max(1, self.key_heads)
        blocks = -(-self.targets // plan.width)
        pieces = 1
        if may_split:
            units = largest(1, self.batch * head_groups)
            pieces = smallest(blocks, -(-_MIN_UNITS // units))
        piece = plan.width * -(-blocks // largest(1, pieces))
        return Numbers(
            targets=self.targets,
            sources=self.sources,
            group=self.query_heads // max(1, self.key_heads),
            head_groups=head_groups,
            heads=self.key_heads // head_groups,
            pieces=largest(1, -(-self.targets // largest(1, piece))),
            piece=piece,
            scratch=self._scratch(plan, lines),
        )

    def _scratch(self, plan: AttentionPlan, lines: int) -> int:
        """Return the bytes of scratch memory of a task."""
        numbers = lines * plan.width
        if plan.is_packed:
            names = [name for name in PACKED if name in self.arrays]
            numbers += self.sources * sum(map(plan.features_of, names))
        return align_up(numbers * dtypes.itemsize(plan.dtype))

    def _stride_table(self) -> list[int]:
        """Return the strides along batch, heads and rows, then along sources."""
        table, steps = [], []
        for name in self.names:
            strides = self._strides(name)
            if name in ("bias", "mask"):
                steps.append(strides[3])
            if len(strides) == 4 and name not in ("bias", "mask"):
                strides[1], strides[2] = strides[2], strides[1]
            table += strides[:3]
        return [*table, *steps]

    def _batched_operands(self) -> frozenset[Reference]:
        """Return the arrays that are partitioned along the batch."""
        pairs = zip(self.names, self.references, strict=True)
        references = {ref for name, ref in pairs if self._strides(name)[0]}
        return frozenset({*references, ("work", 0)})
