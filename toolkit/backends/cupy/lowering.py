"""Lowering table: the library or generator for each primitive, and its lookup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from toolkit import dtypes
from toolkit.backends.cupy import (
    attention,
    convolutions,
    exchanges,
    norms,
    products,
    windows,
)
from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.generators import generate
from toolkit.backends.cupy.cuda.launch import scratch_bytes
from toolkit.backends.cupy.epilogues import match_chain
from toolkit.backends.cupy.steps import Lowered, Product
from toolkit.definitions.records import record
from toolkit.errors import UnsupportedOnBackend
from toolkit.ir import Graph, Kind
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
CONVOLUTIONS = tuple(convolutions.OPS)
ATTENTIONS = ("attention", "attention_grad_of")
# Nodes that take elementwise nodes as an epilogue.
ANCHORS = frozenset({"matmul", "conv", "conv_input_grad"})


@record
class ProviderRule:
    """Provider of primitives; the first table row that matches and accepts wins.

    Attributes:
        primitives: their names; empty matches all remaining ones.
        dtypes: of the result.
        layout: the layout of operands: "rows" requires a contiguous last axis, "any"
            nothing.
        provider: a library, "generated", or "array" for CuPy's own functions.
        needs: the library that the row requires.
    """

    primitives: tuple[str, ...]
    dtypes: frozenset[str]
    layout: str
    provider: str
    needs: str = ""


ALL = frozenset(dtypes.DTYPES)
CAPABILITIES = (
    ProviderRule(("matmul", "product"), FLOATS, "any", "cublaslt", "cublaslt"),
    ProviderRule(ATTENTIONS, attention.HALVES, "rows", "attention", "cudnn"),
    ProviderRule(norms.OPS, norms.DTYPES, "channels last", "norms", "cudnn"),
    ProviderRule(CONVOLUTIONS, convolutions.DTYPES, "channels last", "cudnn", "cudnn"),
    ProviderRule(CONVOLUTIONS, FLOATS, "channels last", "windows", "cublaslt"),
    ProviderRule(("combine_leaves",), FLOATS, "any", "tree"),
    ProviderRule((), ALL, "any", "generated"),
    ProviderRule((), ALL, "any", "array"),
)


def providers(name: str, dtype: str, libraries: frozenset[str]) -> list[str]:
    """Return the possible providers of a primitive with a result dtype, best first."""
    return [
        row.provider
        for row in CAPABILITIES
        if (not row.primitives or name in row.primitives)
        and dtype in row.dtypes
        and (not row.needs or row.needs in libraries)
    ]


@record
class Numerics:
    """Settings that select the steps, in addition to the graph.

    Attributes:
        libraries: the available ones: "cublaslt", "cudnn".
        precision: of float32: "highest", "strict" or "tf32".
        offers: a function that returns whether the library has an algorithm for a
            product with an epilogue.
    """

    libraries: frozenset[str] = frozenset({"cublaslt", "cudnn"})
    precision: str = "strict"
    offers: Callable[[Gemm, int], bool] = field(
        default=lambda gemm, alignment: True, compare=False
    )


DEFAULT = Numerics()


def lower(
    node: Node,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    aligned: bool = True,
    numerics: Numerics = DEFAULT,
) -> Lowered | None:
    """Lower a node to steps; return None where only CuPy's functions compute it.

    Args:
        node: of a fused or of any other primitive.
        inputs, outputs: the operands in the order of the node; outputs are whole arrays
            in row-major order.
        aligned: whether the addresses of all operands are multiples of 16.
        numerics: the available libraries and the precision.
    """
    if not any(y.spec.size for y in outputs):
        return Lowered(inputs=len(inputs))  # a rank without rows of a short batch
    body = _body(node)
    anchor = body.nodes[0]
    is_anchored = anchor.op.name in (*ANCHORS, *CONVOLUTIONS, "product")
    name = anchor.op.name if is_anchored else node.op.name
    for provider in providers(name, outputs[0].spec.dtype, numerics.libraries):
        lowered = None
        if provider in _BY_LIBRARY:
            lowered = _BY_LIBRARY[provider](body, inputs, outputs, numerics.precision)
            if lowered is not None and not _is_offered(lowered, numerics, aligned):
                lowered = None
        elif provider == "generated" and (not is_anchored or node is anchor):
            lowered = _generated(node, inputs, outputs, aligned)
        if lowered is not None:
            return replace(lowered, inputs=len(inputs))
    return None


@record
class LibraryCalls:
    """Limits of one library call.

    Attributes:
        numerics: the available libraries and the precision.
    """

    numerics: Numerics

    def can_take_epilogue(self, nodes: Sequence[Any]) -> bool:
        """Return whether an anchor and the nodes after it are one call."""
        epilogue = match_chain(nodes)
        if nodes[0].op.name == "matmul":
            return products.is_supported(nodes[0], epilogue)
        return epilogue is not None and epilogue.steps in convolutions.FOLLOWERS

    def can_lower(
        self,
        node: Node,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool,
    ) -> bool:
        """Return whether a product with its extra results is one call."""
        return lower(node, inputs, outputs, is_aligned, self.numerics) is not None


def _is_offered(lowered: Lowered, numerics: Numerics, aligned: bool) -> bool:
    """Return whether the library has every product with an epilogue among the steps."""
    gemms = (step.gemm for step in lowered.steps if isinstance(step, Product))
    return all(
        gemm.is_plain
        or numerics.offers(gemm, 16 if aligned else dtypes.itemsize(gemm.dtypes[0]))
        for gemm in gemms
    )


def _body(node: Node) -> Graph:
    """Return the graph of a fused node, or a graph of the single node."""
    if node.op.name == "fused":
        body: Graph = node.attrs["body"]
        return body
    return Graph(node.inputs, (node,), node.outputs)


def _generated(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Lowered | None:
    launches = generate(node, inputs, outputs, aligned)
    if launches is None:
        return None
    return Lowered(launches, scratch_bytes(launches))


_BY_LIBRARY: dict[str, Callable[..., Lowered | None]] = {
    "cublaslt": products.lower_matmul,
    "cudnn": convolutions.lower_by_cudnn,
    "windows": windows.lower_by_windows,
    "attention": attention.lower_by_cudnn,
    "norms": norms.lower_by_cudnn,
    "tree": exchanges.lower_combination,
}


def check_supported(node: Node, kernels: Any) -> None:
    """Raise an error at compile time for a node that nothing computes.

    Args:
        node: a node without steps from `lower`.
        kernels: of the array module, by the name of the primitive.

    Raises:
        UnsupportedOnBackend: the message gives the reason.
    """
    name = node.op.name
    if node.op.kind in (Kind.CONTROL, Kind.VIEW, Kind.COMPOSITE) or name in kernels:
        return
    if name in ("fused", "transfer"):  # expanded, or copied
        return
    spec = node.outputs[0].spec
    raise UnsupportedOnBackend(
        name, spec.dtype, "row-major", "neither a library nor a generator supports it"
    )
