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
        return f"{op} makes random numbers, which are not read from files"
    if op.startswith(_OTHER):
        return f"{op} is about strings; only tensors of numbers are read"
    domain = runtime.DOMAIN
    if op.startswith(f"{domain}."):
        supported = sorted(name for name in OPERATORS if name.startswith(f"{domain}."))
        return f"there is no operator {op!r} here; of its domain there are {supported}"
    return f"there is no operator {op!r} here; known are {len(OPERATORS)} others"
