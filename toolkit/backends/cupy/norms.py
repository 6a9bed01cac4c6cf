"""Batch normalization in training mode as cuDNN graphs: forward and gradients.

Generated kernels compute layer and RMS normalization: they read a row once if it fits
in registers. Whether cuDNN's kernels are faster is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolkit import dtypes
from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Scalar, make_kernel
from toolkit.backends.cupy.signatures import Builder, Signature
from toolkit.backends.cupy.steps import Dnn, Lowered, NotLowered, StepBuilder
from toolkit.ir import Graph, Spec
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

OPS = ("batch_norm_of", "batch_norm_grad_of")
DTYPES = frozenset({"float16", "bfloat16", "float32"})
# Vector width in bytes of reads along the channels of one position.
VECTOR = 16
MAX_ELEMENTS = 1 << 31
THREADS = 256
_VARIANCE = make_kernel(
    "variance",
    'extern "C" __global__ void KERNEL(const float* r, float* v, float epsilon, '
    "long long n) {\n"
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) v[i] = fmaxf(1.0f / (r[i] * r[i]) - epsilon, 0.0f);\n}\n",
    ("const float*", "float*", "float", "long long"),
)


def is_supported(node: Node) -> bool:
    """Return whether cuDNN computes a batch normalization, or its gradients."""
    specs = [value.spec for value in node.inputs]
    x, scale = specs[:2] if node.op.name == OPS[0] else specs[1:3]
    row = x.shape[-1] * dtypes.itemsize(x.dtype)
    fits = 2 <= x.ndim <= 5 and 0 < x.size < MAX_ELEMENTS
    return x.dtype in DTYPES and scale.dtype == "float32" and fits and row % VECTOR == 0


def lower_by_cudnn(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], precision: str
) -> Lowered | None:
    """Lower a normalization with its epilogue, or its gradients, to steps."""
    (node,) = body.nodes
    builder = StepBuilder()
    try:
        addresses = [
            Buffer(i) if x.is_contiguous else builder.copy(Buffer(i), x)
            for i, x in enumerate(inputs)
        ]
    except NotLowered:
        return None
    specs = [x.spec for x in inputs]
    ends = [Buffer(len(inputs) + i) for i in range(len(outputs))]
    if node.op.name != OPS[0]:
        builder.steps.append(Dnn(_backward(specs), (*addresses, *ends)))
        return builder.build()
    y, center, variance, factor = ends
    # cuDNN updates moving averages itself, with a different rule than layers; these
    # results are unused.
    unread = [builder.allocate(specs[1].nbytes) for _ in range(2)]
    averages = addresses[2], addresses[1]  # any valid inputs
    operands = (*addresses, *averages, y, center, factor, *unread)
    builder.steps.append(Dnn(_forward(specs, node.attrs), operands))
    count = specs[1].size
    arguments = factor, variance, Scalar(node.attrs["epsilon"]), Scalar(count)
    grid = (-(-count // THREADS), 1, 1)
    builder.steps.append(Launch(_VARIANCE, grid, (THREADS, 1, 1), arguments))
    return builder.build()


def _image(graph: Builder, x: Spec) -> int:
    """Return a (batch, channels, *spatial) tensor with at least 2 spatial axes.

    Its memory is channels last.
    """
    batch, *spatial, channels = x.shape
    return graph.tensor((batch, channels, *[1] * (2 - len(spatial)), *spatial))


def _vector(graph: Builder, image: int) -> int:
    """Return a float32 tensor with one number per channel of an image."""
    _, channels, *spatial = graph.tensors[image].shape
    return graph.tensor((1, channels, *[1] * len(spatial)), dtype="float32")


def _forward(specs: Sequence[Spec], attrs: Any) -> Signature:
    graph = Builder(specs[0].dtype, "strict")
    x = _image(graph, specs[0])
    scale, offset = _vector(graph, x), _vector(graph, x)
    residual = [_image(graph, spec) for spec in specs[3:]]
    # They share the addresses of offset and scale. With the same tensors, cuDNN makes a
    # plan and then refuses to run it.
    averages = [_vector(graph, x) for _ in range(2)]
    y = _image(graph, specs[0])
    statistics = [_vector(graph, x) for _ in range(4)]
    follow = [*(("add", r) for r in residual), *([("relu", None)] * attrs["relu"])]
    value = graph.inner(y) if follow else y
    graph.add(
        "batchnorm",
        [x, scale, offset, *averages],
        [value, *statistics],
        ("input", "scale", "bias", "in_running_mean", "in_running_var"),
        epsilon=float(attrs["epsilon"]),
        momentum=1.0,
    )
    for number, (step, other) in enumerate(follow):
        target = y if number == len(follow) - 1 else graph.inner(y)
        value = graph.add(step, [value] if other is None else [value, other], [target])
    return graph.build()


def _backward(specs: Sequence[Spec]) -> Signature:
    graph = Builder(specs[1].dtype, "strict")
    g, x = (_image(graph, spec) for spec in specs[:2])
    vectors = [_vector(graph, x) for _ in range(3)]
    outputs = [_image(graph, specs[1]), _vector(graph, x), _vector(graph, x)]
    names = ("grad", "input", "scale", "mean", "inv_variance")
    graph.add("batchnorm_backward", [g, x, *vectors], outputs, names)
    return graph.build()
