"""cuDNN graphs as hashable data, which are the keys of plans.

Tensors have channels-first shapes, as cuDNN orders axes, and channels-last strides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.definitions.records import record

Extents = tuple[int, ...]


@record
class DnnTensor:
    """Tensor of a graph; uid 0 is an internal value that never reaches memory."""

    uid: int
    shape: Extents
    strides: Extents
    dtype: str

    @property
    def nbytes(self) -> int:
        """Return the bytes of its contiguous memory."""
        return prod(self.shape) * dtypes.itemsize(self.dtype)


@record
class DnnNode:
    """One operation of a graph.

    Attributes:
        op: the method of the frontend's graph.
        inputs, outputs: positions of its tensors.
        names: of the inputs, if they are keyword arguments.
        arguments: the remaining ones, by name.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    names: tuple[str, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()


@record
class Signature:
    """cuDNN graph with its required precision.

    Attributes:
        tensors: in the order of their positions in nodes.
        nodes: in execution order.
        precision: all except "tf32" disallow tensor cores for float32; "highest" also
            disallows transforms of convolutions.
    """

    tensors: tuple[DnnTensor, ...]
    nodes: tuple[DnnNode, ...]
    precision: str = "strict"

    @property
    def dtype(self) -> str:
        """Return the dtype of the inputs and outputs."""
        return self.tensors[0].dtype

    @property
    def sizes(self) -> list[int]:
        """Return the bytes of the tensors in memory, in the order of their uids."""
        return [t.nbytes for t in sorted(self.tensors, key=lambda t: t.uid) if t.uid]

    @property
    def is_strict(self) -> bool:
        """Return whether tensor cores would round its factors."""
        return self.precision != "tf32" and self.dtype == "float32"

    @property
    def key(self) -> str:
        """Return a short key that only equal graphs share."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:24]

    @property
    def flops(self) -> int:
        """Return the operations of its convolution or attention."""
        node = self.nodes[0]
        shapes = [self.tensors[i].shape for i in (*node.inputs, node.outputs[0])]
        if node.op.startswith("sdpa"):
            products = 4 if node.op == "sdpa" else 10
            return products * prod(shapes[0]) * shapes[1][2]
        if not node.op.startswith("conv"):
            return 0
        # Input, filter and result, in the order of conv_fprop.
        order = {"conv_dgrad": (0, 1), "conv_wgrad": (1, 2)}.get(node.op, (2, 1))
        result, filters = (shapes[i] for i in order)
        return 2 * prod(result) * prod(filters[1:])


@dataclass
class Builder:
    """Builder of the tensors and nodes of a signature."""

    dtype: str
    precision: str
    tensors: list[DnnTensor] = field(default_factory=list)
    nodes: list[DnnNode] = field(default_factory=list)
    uids: int = 0

    def tensor(
        self, shape: Sequence[int], strides: Extents | None = None, dtype: str = ""
    ) -> int:
        """Add a tensor with a channels-first shape; channels last by default."""
        self.uids += 1
        shape = tuple(shape)
        strides = strides or channels_last(shape)
        self.tensors.append(DnnTensor(self.uids, shape, strides, dtype or self.dtype))
        return len(self.tensors) - 1

    def inner(self, like: int) -> int:
        """Add an internal tensor, computed and stored in float32."""
        x = self.tensors[like]
        self.tensors.append(DnnTensor(0, x.shape, x.strides, "float32"))
        return len(self.tensors) - 1

    def add(
        self,
        op: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        names: tuple[str, ...] = (),
        **arguments: Any,
    ) -> int:
        """Append an operation; return its first output."""
        tensors_read = tuple(sorted(arguments.items()))
        node = DnnNode(op, tuple(inputs), tuple(outputs), names, tensors_read)
        self.nodes.append(node)
        return outputs[0]

    def build(self) -> Signature:
        """Return the graph."""
        return Signature(tuple(self.tensors), tuple(self.nodes), self.precision)


def channels_last(shape: Extents) -> Extents:
    """Return the channels-last strides, in elements, of a channels-first shape."""
    strides, step = [0] * len(shape), 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


@record
class Geometry:
    """Window geometry; a 1-axis convolution gets a first axis of extent 1."""

    strides: Extents
    padding: tuple[tuple[int, int], ...]
    dilation: Extents

    @classmethod
    def of(cls, attrs: Any) -> Geometry:
        """Return the geometry of a node's attributes."""
        strides, dilation = attrs["strides"], attrs["dilation"]
        if len(strides) > 1:
            return cls(strides, attrs["padding"], dilation)
        return cls((1, *strides), ((0, 0), *attrs["padding"]), (1, *dilation))

    @property
    def arguments(self) -> dict[str, Extents]:
        """Return the attributes under cuDNN's names."""
        return {
            "pre_padding": tuple(low for low, _ in self.padding),
            "post_padding": tuple(high for _, high in self.padding),
            "stride": self.strides,
            "dilation": self.dilation,
        }


def images(shape: Extents) -> Extents:
    """Return the channels-first shape of (batch, *spatial, channels)."""
    batch, *spatial, channels = shape
    return (batch, channels, *([1, *spatial] if len(spatial) == 1 else spatial))


def filters(shape: Extents) -> Extents:
    """Return the cuDNN shape of a kernel (*size, channels, filters)."""
    *size, channels, count = shape
    return (count, channels, *([1, *size] if len(size) == 1 else size))


def convolution(
    op: str,
    shapes: Sequence[Extents],
    geometry: Geometry,
    dtype: str,
    precision: str,
    follow: Sequence[str] = (),
) -> Signature:
    """Return the signature of a convolution or a gradient, with its epilogue.

    Args:
        op: "conv_fprop" of an image and filters, "conv_dgrad" of the gradient of the
            result and filters, or "conv_wgrad" of an image and that gradient.
        shapes: of the two inputs and the result, channels first; filters have the
            filter axis first.
        geometry: of the windows.
        dtype: of all tensors in memory.
        precision: "highest", "strict" or "tf32".
        follow: "bias" and "add" (each with one more input), or "relu".

    Returns:
        The signature. The uids are 1 and 2 for the inputs, then one per epilogue input,
            and the last for the result.
    """
    graph = Builder(dtype, precision)
    inputs = [graph.tensor(shape) for shape in shapes[:2]]
    result = shapes[2]
    vector = (1, result[1], *[1] * (len(result) - 2))
    extra = {"bias": vector, "add": result}
    tensors_read = [graph.tensor(extra[step]) for step in follow if step != "relu"]
    out = graph.tensor(result)
    steps = [op, *follow]
    value, remaining = -1, iter(tensors_read)
    for number, step in enumerate(steps):
        target = out if number == len(steps) - 1 else graph.inner(out)
        if number == 0:
            value = graph.add(op, inputs, [target], (), **geometry.arguments)
        elif step == "relu":
            value = graph.add("relu", [value], [target])
        else:
            value = graph.add("add", [value, next(remaining)], [target])
    return graph.build()
