"""Table of ONNX's operators, one row for each."""

from __future__ import annotations

from toolkit.models.importing.call import Operator
from toolkit.models.importing.operators import (
    attention,
    blocks,
    contractions,
    control,
    convolutions,
    elementwise,
    indexing,
    losses,
    normalization,
    pooling,
    quantized,
    recurrent,
    reductions,
    resizing,
    runtime,
    sampling,
    selection,
    sequences,
    shapes,
    signal,
    streaming,
)

_FAMILIES = (
    *(elementwise, shapes, blocks, contractions, attention, convolutions, pooling),
    *(normalization, reductions, indexing, selection, resizing, sampling, recurrent),
    *(control, quantized, runtime, losses, signal, streaming),
    *(sequences,),
)

OPERATORS: dict[str, Operator] = {
    row.name: row for family in _FAMILIES for row in family.OPERATORS
}

_RANDOM = ("RandomNormal", "RandomUniform", "Multinomial", "Bernoulli")
_OTHER = ("String", "Regex")


def explain_unsupported(op: str) -> str:
    """Return the reason why an operator is unsupported."""
    if op.startswith(_RANDOM):
        return f"{op} generates random numbers, which is unsupported"
    if op.startswith(_OTHER):
        return f"{op} processes strings; only numeric tensors are supported"
    domain = runtime.DOMAIN
    if op.startswith(f"{domain}."):
        supported = sorted(name for name in OPERATORS if name.startswith(f"{domain}."))
        return (
            f"unsupported operator {op!r}; the supported operators of its domain are "
            f"{supported}"
        )
    return (
        f"unsupported operator {op!r}; {len(OPERATORS)} other operators are supported"
    )
