"""Writer of ONNX nodes: names, inputs and layouts.

Images are channels last in this package, and channels first in ONNX. A value can exist
in one layout or both, each with a name. If the requested layout does not exist, the
writer adds a Transpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import UnsupportedError
from toolkit.export.onnx.family import Family, SizeDependent, describe_node
from toolkit.export.onnx.nodes import Body, Constants, Names, Operation
from toolkit.export.onnx.patterns import write_pattern
from toolkit.export.onnx.sizes import Extent, Length
from toolkit.export.onnx.table import ELEMENTWISE, RULES, UNSUPPORTED
from toolkit.export.onnx.windows import as_attributes, padding
from toolkit.ir import Graph, Node, Value

IMAGE_RANKS = (3, 4, 5)
INT64 = np.iinfo(np.int64)


class Writer:
    """Writer of the nodes of one graph.

    Args:
        family: the graphs of a model.
        opset: the operator set version.
        outer: the writer of the enclosing graph, or None.

    Attributes:
        family, opset: the arguments.
        nodes: the nodes written so far.
        tensor_names: the name of each value in its original layout.
        nchw_names: the name of each value with its channels moved to axis 1.
        scaled: values that are another value times and plus constants (`convolution`).
        normalized: values that are another value normalized (`patterns`).
        clipped: values that are another value clipped to an interval (`patterns`).
        origin: the path of the layer of the current nodes.
        use_counts: the number of uses of each value.
        max_pool_inputs: the inputs of max pooling.
        producers: the producer of each value.
        samples: the data of size-dependent constants at each size.
        labels: names for constants, such as paths of Variables.
    """

    def __init__(self, family: Family, opset: int, outer: Writer | None = None) -> None:
        self.family, self.opset = family, opset
        self.nodes: list[Operation] = []
        self.tensor_names: dict[Value, str] = {}
        self.nchw_names: dict[Value, str] = {}
        self.scaled: dict[Value, Any] = {}
        self.normalized: dict[Value, Any] = {}
        self.clipped: dict[Value, Any] = {}
        self.use_counts: Counter[Value] = Counter()
        self.max_pool_inputs: set[Value] = set()
        self.producers: dict[Value, Node] = {}
        self.names: Names = Names() if outer is None else outer.names
        self.constants: Constants = (
            Constants(self.names) if outer is None else outer.constants
        )
        self.samples: dict[Value, Any] = {} if outer is None else outer.samples
        self.labels: dict[Value, str] = {} if outer is None else outer.labels
        # The writer of the outermost graph, which computes sizes.
        self._root: Writer = self if outer is None else outer._root
        self._prelude: list[Operation] = []
        self._sizes: dict[Any, str] = {}
        self.origin: str = "" if outer is None else outer.origin

    # --- nodes ------------------------------------------------------------------------

    def node(self, operator: str, inputs: Sequence[str], **attrs: Any) -> str:
        """Write a node with one result; return its name."""
        return self.node_with_outputs(operator, inputs, 1, **attrs)[0]

    def node_with_outputs(
        self, operator: str, inputs: Sequence[str], count: int, **attrs: Any
    ) -> list[str]:
        """Write a node with several results; return their names."""
        path = f"{self.origin}/{operator}" if self.origin else operator
        name = self.names(path)
        outputs = [name] + [f"{name}:{i}" for i in range(1, count)]
        attrs = {k: v for k, v in attrs.items() if v is not None}
        self.nodes.append(Operation(path, operator, list(inputs), [*outputs], attrs))
        return outputs

    def graph(self, graph: Graph) -> None:
        """Write the nodes of a graph whose inputs have names."""
        self.use_counts.update(x for node in graph.nodes for x in node.inputs)
        self.use_counts.update(graph.outputs)
        pools = (node for node in graph.nodes if node.op.name == "max_pool")
        self.max_pool_inputs.update(x for node in pools for x in node.inputs)
        for node in graph.nodes:
            self.origin = node.origin or self.origin
            self._write(node)
            self.producers.update((value, node) for value in node.outputs)

    def _write(self, node: Node) -> None:
        result = write_pattern(self, node)
        if result is None:
            result = self._apply_rule(node)
        names = (result,) if isinstance(result, str) else result
        for value, name in zip(node.outputs, names or (), strict=False):
            if name:
                self.tensor_names[value] = name

    def _apply_rule(self, node: Node) -> Any:
        name = node.op.name
        if name in ELEMENTWISE:
            return self._elementwise(node)
        if name in RULES:
            return RULES[name](self, node)
        raise self.unsupported_node(
            node, UNSUPPORTED.get(name, "ONNX cannot represent it")
        )

    def unsupported_node(self, node: Node, reason: str) -> UnsupportedError:
        """Return the error for a node that cannot be written."""
        return UnsupportedError(f"{self.family.label}: {describe_node(node)}: {reason}")

    def body(self, graph: Graph, inputs: dict[Value, str]) -> Writer:
        """Return a writer for a subgraph of a node, with these input names."""
        inner = Writer(self.family, self.opset, self)
        inner.tensor_names.update(inputs)
        inner.graph(graph)
        return inner

    def results(self, values: Sequence[Value]) -> list[str]:
        """Return unique names of a graph's results, each computed by a node in it."""
        names = [self(value) for value in values]
        unused_outputs = {output for node in self.nodes for output in node.outputs}
        for i, name in enumerate(names):
            if name not in unused_outputs:
                names[i] = self.node("Identity", [name])
            unused_outputs.discard(name)
        return names

    def result_of(self, inner: Writer, value: Value) -> str:
        """Merge the nodes of a nested writer; return the name of a result."""
        name = inner(value)
        self.nodes += inner.nodes
        return name

    # --- values -----------------------------------------------------------------------

    def __call__(self, value: Any) -> str:
        """Return the name of a value in its original layout."""
        if value not in self.tensor_names:
            if value in self.nchw_names:
                self.tensor_names[value] = self.to_original_layout(
                    self.nchw_names[value], value
                )
            elif value.constant is not None:
                self.tensor_names[value] = self.constant_of(value)
            else:
                raise self.family.unknown_dependence(value)
        return self.tensor_names[value]

    def channels_first(self, value: Any) -> str:
        """Return the name of a value with its channels moved to axis 1."""
        if value not in self.nchw_names:
            rank = value.spec.ndim
            if value.constant is not None and not self.depends_on_sizes(value):
                array = np.moveaxis(np.asarray(value.constant), -1, 1)
                self.nchw_names[value] = self.constants.add(np.ascontiguousarray(array))
            elif rank < 3:
                self.nchw_names[value] = self(value)
            else:
                order = [0, rank - 1, *range(1, rank - 1)]
                self.nchw_names[value] = self._change_layout(self(value), value, order)
        return self.nchw_names[value]

    def to_original_layout(self, name: str, value: Any) -> str:
        """Convert a channels-first tensor to the original layout; return its name."""
        rank = value.spec.ndim
        return self._change_layout(name, value, [0, *range(2, rank), 1])

    def _change_layout(self, name: str, value: Any, order: list[int]) -> str:
        shape = self.family.shape(value)
        to_first = order[1] == value.spec.ndim - 1
        if all(n == 1 for n in shape[1:-1]) or shape[-1] == 1:
            moved = (shape[0], shape[-1], *shape[1:-1]) if to_first else shape
            if sum(not isinstance(n, int) for n in moved) <= 1:
                return self.reshaped(name, moved)
        return self.node("Transpose", [name], perm=order)

    def is_only_nchw(self, value: Value) -> bool:
        """Return whether a value exists only channels first."""
        return value in self.nchw_names and value not in self.tensor_names

    def depends_on_sizes(self, value: Any) -> bool:
        """Return whether a constant depends on free sizes."""
        return isinstance(self.family.constant(value), SizeDependent)

    def array(self, value: Any) -> Any:
        """Return the data of a constant that is equal for all sizes, or None."""
        if value.constant is None:
            return None
        data = self.family.constant_or_none(value)
        return None if isinstance(data, SizeDependent) else data

    def number(self, value: Any) -> float | None:
        """Return the value of a scalar constant, or None."""
        array = self.array(value)
        return (
            None if array is None or array.size != 1 else float(array.reshape(())[()])
        )

    def has_one_use(self, value: Value) -> bool:
        """Return whether exactly one node reads a value."""
        return self.use_counts[value] == 1

    # --- constants and sizes ----------------------------------------------------------

    def label(self, value: Any, name: str) -> str:
        """Return a name for an object derived from a constant."""
        return self.labels.get(value, f"{self.origin}/{name}" if self.origin else name)

    def constant_of(self, value: Any) -> str:
        """Return the name of a constant's data."""
        data = self.family.constant(value)
        if isinstance(data, SizeDependent):
            return self.write_size_dependent(data)
        return self.constants.add(data, self.labels.get(value, ""))

    def scalar(self, number: Any, dtype: str) -> str:
        """Return the name of a scalar constant."""
        return self.constants.add(np.array(number, dtypes.numpy_dtype(dtype)))

    def ints(self, numbers: Sequence[int]) -> str:
        """Return the name of an int64[n] constant."""
        return self.constants.add(np.array(numbers, np.int64))

    def write_size_dependent(self, constant: SizeDependent) -> str:
        """Return the name of a size-dependent value from its description."""
        name = self.constants.add(constant.start)
        dtype = dtypes.NAMES[constant.start.dtype]
        for size, slope in constant.slopes.items():
            factor = self.cast(self.size(Extent({(size,): 1})), dtype)
            term = self.node("Mul", [factor, self.constants.add(slope)])
            name = self.node("Add", [name, term])
        if constant.axis is not None:
            limit = self.node("Squeeze", [self.size(constant.shape[constant.axis])])
            zero, one = self.scalar(0, "int64"), self.scalar(1, "int64")
            positions = self.node("Range", [zero, limit, one])
            trailing = len(constant.shape) - constant.axis - 1
            positions = self.reshaped(
                self.cast(positions, dtype), (-1, *[1] * trailing)
            )
            steps = self.node("Mul", [positions, self.constants.add(constant.step)])
            name = self.node("Add", [name, steps])
        return self.node("Expand", [name, self.lengths(constant.shape)])

    def size(self, length: Length) -> str:
        """Return the name of an int64[1] with an extent."""
        if isinstance(length, int):
            return self.ints([length])
        root = self._root
        if length not in root._sizes:
            nodes, root.nodes = root.nodes, root._prelude
            origin, root.origin = root.origin, ""
            root._sizes[length] = root._write_sum(length)
            root.nodes, root.origin = nodes, origin
        return root._sizes[length]

    def _write_sum(self, length: Extent) -> str:
        total = ""
        for product, factor in length.terms.items():
            names = [self._sizes[name] for name in product]
            if factor != 1 or not names:
                names.append(self.ints([factor]))
            term = names[0]
            for name in names[1:]:
                term = self.node("Mul", [term, name])
            total = self.node("Add", [total, term]) if total else term
        return total or self.ints([0])

    def define_size(self, size: str, source: str, axis: int) -> None:
        """Record the input axis that defines a free size."""
        nodes, self.nodes = self.nodes, self._prelude
        self._sizes[size] = self.node("Shape", [source], start=axis, end=axis + 1)
        self._sizes[Extent({(size,): 1})] = self._sizes[size]
        self.nodes = nodes

    @property
    def all_nodes(self) -> list[Operation]:
        """Return the nodes that compute sizes, then all other nodes."""
        return [*self._prelude, *self.nodes]

    def lengths(self, shape: Sequence[Length | str | None]) -> str:
        """Return the name of an int64[n] with these extents or named sizes."""
        if all(isinstance(n, int) for n in shape):
            return self.ints([n for n in shape if isinstance(n, int)])
        pieces: list[str] = []
        integers: list[int] = []
        for n in shape:
            if isinstance(n, int):
                integers.append(n)
                continue
            pieces += [self.ints(integers)] if integers else []
            pieces.append(n if isinstance(n, str) else self.size(n))  # type: ignore
            integers = []
        pieces += [self.ints(integers)] if integers else []
        return self.node("Concat", pieces, axis=0) if len(pieces) > 1 else pieces[0]

    def known_shape(self, value: Value, node: Node) -> tuple[Length, ...]:
        """Return the shape of a value; all extents must be known."""
        shape = self.family.shape(value)
        if any(n is None for n in shape):
            raise self.family.unsupported_dependence(node, f"shape {value.spec.shape}")
        return shape  # type: ignore[return-value]

    def reshaped(self, name: str, shape: Sequence[Length | None]) -> str:
        """Return a reshaped tensor; one extent can be unknown.

        -1 infers the extent. 0 copies the extent of the tensor at that axis.
        """
        free = [i for i, n in enumerate(shape) if not isinstance(n, int)]
        if len(free) == 1 and 0 not in shape and -1 not in shape:
            shape = [-1 if i == free[0] else n for i, n in enumerate(shape)]
        is_empty = 0 in shape and -1 not in shape
        target = self.lengths(shape)
        return self.node("Reshape", [name, target], allowzero=1 if is_empty else None)

    def cast(self, name: str, dtype: str) -> str:
        """Return a tensor cast to another dtype."""
        return self.node("Cast", [name], to=dtype)

    # --- helpers of several rules -----------------------------------------------------

    def reduce(
        self, operator: str, name: str, axes: Sequence[int], keepdims: bool
    ) -> str:
        """Write a reduction; axes are an attribute or an input, by opset."""
        if not axes:
            return self.node("Identity", [name])
        keep = int(keepdims)
        if self.opset >= 18 or operator == "ReduceSum":
            return self.node(operator, [name, self.ints(axes)], keepdims=keep)
        return self.node(operator, [name], axes=list(axes), keepdims=keep)

    def pool(self, operator: str, node: Node, out: Value, **attrs: Any) -> None:
        """Pool the input of a pooling node, channels first."""
        pool_attrs = self.family.attrs(node, unchecked="padding")
        name = self.channels_first(node.inputs[0])
        self.nchw_names[out] = self.node(
            operator,
            [name],
            kernel_shape=list(pool_attrs["window"]),
            strides=list(pool_attrs["strides"]),
            **as_attributes(padding(self.family, node)),
            **attrs,
        )

    # --- elementwise ------------------------------------------------------------------

    def _elementwise(self, node: Node) -> Any:
        """Write an elementwise node, channels first if an input exists only so."""
        rank = node.outputs[0].spec.ndim
        if rank in IMAGE_RANKS and any(map(self.is_only_nchw, node.inputs)):
            names = [self._align_operand(x, rank, node) for x in node.inputs]
            self.nchw_names[node.outputs[0]] = ELEMENTWISE[node.op.name](
                self, node, *names
            )
            return ()
        return ELEMENTWISE[node.op.name](self, node, *map(self, node.inputs))

    def _align_operand(self, x: Any, rank: int, node: Node) -> str:
        """Reshape an operand for broadcasting with channels-first tensors."""
        shape = x.spec.shape
        array = self.array(x)
        if x.spec.size == 1 and array is not None:
            return self.constants.add(array.reshape(()))
        if len(shape) == rank:
            return self.channels_first(x)
        leading = (1,) * (rank - len(shape))
        if array is not None:
            array = np.moveaxis(array.reshape((*leading, *shape)), -1, 1)
            return self.constants.add(np.ascontiguousarray(array))
        if not shape:
            return self(x)
        wide = (*leading, *self.known_shape(x, node))
        name = self.reshaped(self(x), wide)
        return self.node("Transpose", [name], perm=[0, rank - 1, *range(1, rank - 1)])


def as_body(
    writer: Writer, inputs: Any, outputs: Sequence[Any], first: Sequence[Any] = ()
) -> Body:
    """Return the body of a node from its writer.

    Args:
        writer: the writer, after its graph.
        inputs: (name, dtype, rank) of each.
        outputs: the values that it returns.
        first: additional first results: (name, dtype, rank).
    """
    names = writer.results(outputs)
    results = [
        (n, y.spec.dtype, y.spec.ndim) for n, y in zip(names, outputs, strict=True)
    ]
    return Body(list(inputs), [*first, *results], writer.nodes)
