"""Attention as cuDNN graphs: forward and backward, in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Scalar, make_kernel
from toolkit.backends.cupy.signatures import Builder, Signature
from toolkit.backends.cupy.steps import Address, Dnn, Lowered, NotLowered, StepBuilder
from toolkit.ir import Graph, Spec
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

HALVES = frozenset({"float16", "bfloat16"})
MAX_HEAD_FEATURES = 128  # features per head
THREADS = 256
_ONES = make_kernel(
    "ones",
    'extern "C" __global__ void KERNEL(float* y, long long n) {\n'
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) y[i] = 1.0f;\n}\n",
    ("float*", "long long"),
)


def is_supported(node: Node) -> bool:
    """Return whether cuDNN supports an attention: half precision, no bias, no mask."""
    query, key, value = (x.spec for x in node.inputs[:3])
    features = query.shape[3]
    even = (
        features % 8 == 0
        and features <= MAX_HEAD_FEATURES
        and value.shape[3] == features
    )
    is_complete = query.size and key.size and not node.attrs["given"]
    return bool(query.dtype in HALVES and even and is_complete)


def lower_by_cudnn(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], precision: str
) -> Lowered | None:
    """Return the steps of a single attention node, or of its gradients."""
    node = body.nodes[0]
    is_grad = node.op.name == "attention_grad_of"
    if len(body.nodes) > 1:
        return None
    builder = StepBuilder()
    try:
        addresses = [_as_row_major(builder, Buffer(i), x) for i, x in enumerate(inputs)]
    except NotLowered:
        return None
    ends = [Buffer(len(inputs) + i) for i in range(len(outputs))]
    if is_grad:
        query, key, value = (x.spec for x in inputs[3:])
        order = (3, 4, 5, 1, 0, 2)  # query, key, value, out, g, peak
        signature = _backward(query, key, value, node.attrs)
        builder.steps.append(Dnn(signature, (*(addresses[i] for i in order), *ends)))
        return builder.build()
    query, key, value = (x.spec for x in inputs)
    signature = _forward(query, key, value, node.attrs)
    builder.steps.append(Dnn(signature, (*addresses, *ends[:2])))
    # cuDNN returns the maximum plus the logarithm of the sum, so the sum that remains
    # is 1.
    count = outputs[2].spec.size
    arguments = (ends[2], Scalar(count))
    grid = (-(-count // THREADS), 1, 1)
    builder.steps.append(Launch(_ONES, grid, (THREADS, 1, 1), arguments))
    return builder.build()


def _as_row_major(builder: StepBuilder, address: Address, operand: Operand) -> Address:
    return address if operand.is_contiguous else builder.copy(address, operand)


def _heads(graph: Builder, x: Spec) -> int:
    """Return a (batch, heads, n, features) view in cuDNN's order of axes."""
    batch, n, heads, features = x.shape
    strides = (n * heads * features, features, heads * features, 1)
    return graph.tensor((batch, heads, n, features), strides)


def _rows(graph: Builder, query: Spec) -> int:
    """Return a float32 tensor with one number per row of logits."""
    batch, n, heads, _ = query.shape
    return graph.tensor((batch, heads, n, 1), (heads * n, n, 1, 1), "float32")


def _forward(query: Spec, key: Spec, value: Spec, attrs: Any) -> Signature:
    graph = Builder(query.dtype, "strict")
    inputs = [_heads(graph, x) for x in (query, key, value)]
    outputs = [_heads(graph, query), _rows(graph, query)]
    graph.add(
        "sdpa",
        inputs,
        outputs,
        ("q", "k", "v"),
        generate_stats=True,
        attn_scale=float(attrs["scale"]),
        use_causal_mask=bool(attrs["is_causal"]),
    )
    return graph.build()


def _backward(query: Spec, key: Spec, value: Spec, attrs: Any) -> Signature:
    graph = Builder(query.dtype, "strict")
    inputs = [_heads(graph, x) for x in (query, key, value, query, query)]
    inputs.append(_rows(graph, query))
    outputs = [_heads(graph, x) for x in (query, key, value)]
    graph.add(
        "sdpa_backward",
        inputs,
        outputs,
        ("q", "k", "v", "o", "dO", "stats"),
        attn_scale=float(attrs["scale"]),
        use_causal_mask=bool(attrs["is_causal"]),
        use_deterministic_algorithm=True,
    )
    return graph.build()
