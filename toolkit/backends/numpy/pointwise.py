"""Gradients of convolutions with 1x1 kernels, as matrix products.

Such a convolution is a product of pixels and kernel. The gradient of the kernel is then
a product over all pixels. The optimizer's update can fuse with it.
"""

from __future__ import annotations

from math import prod

from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Node, Spec, Value

# Kernels of up to this number of elements stay in a cache for all pixels. The
# convolution kernel then reads each pixel in its original layout.
_MAX_CACHED_KERNEL = 1 << 14


def pointwise_gradients_as_products(graph: Graph, target: Target) -> Graph:
    """Use matrix products if kernels have one element along each spatial axis."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _as_product(node) if _is_pointwise(node) else [node]
    return graph.replace(nodes)


def _is_pointwise(node: Node) -> bool:
    if node.op.name != "conv_kernel_grad" or node.attrs["groups"] > 1:
        return False
    if prod(node.attrs["kernel"]) > 1 or any(map(any, node.attrs["padding"])):
        return False
    return bool(node.outputs[0].spec.size > _MAX_CACHED_KERNEL)


def _as_product(node: Node) -> list[Node]:
    """Return nodes for the transposed pixels times the gradients of the results."""
    nodes: list[Node] = []

    def computed(name: str, spec: Spec, *inputs: Value, **attrs: object) -> Value:
        y = Value(spec)
        nodes.append(Node(PRIMITIVES[name], inputs, attrs, (y,), node.device))
        return y

    x, g = node.inputs
    strides = node.attrs["strides"]
    if prod(strides) > 1:
        counts = zip(g.spec.shape[1:-1], strides, strict=True)
        ends = tuple((count - 1) * stride + 1 for count, stride in counts)
        shape = x.spec.shape
        x = computed(
            "slice",
            x.spec.with_shape((*g.spec.shape[:-1], shape[-1])),
            x,
            start=(0,) * len(shape),
            stop=(shape[0], *ends, shape[-1]),
            step=(1, *strides, 1),
        )
    # The leading axes of extent 1 give the result the shape of the kernel.
    ones = (1,) * len(strides)
    rows = prod(g.spec.shape[:-1])
    matrices = []
    for value in (x, g):
        shape = (*ones, rows, value.spec.shape[-1])
        matrices.append(
            computed("reshape", value.spec.with_shape(shape), value, shape=shape)
        )
    pixels, gradients = matrices
    axes = (*range(len(ones)), len(ones) + 1, len(ones))
    transposed = pixels.spec.with_shape(pixels.spec.shape[axis] for axis in axes)
    pixels = computed("transpose", transposed, pixels, axes=axes)
    attrs = {"factors": node.attrs["factors"]} if node.attrs.get("factors") else {}
    product = Node(
        PRIMITIVES["matmul"], (pixels, gradients), attrs, node.outputs, node.device
    )
    return [*nodes, product]
