"""Translation rules of all primitives, registered by import."""

from toolkit.export.onnx.rules import (
    composites as composites,
    contract as contract,
    control as control,
    elementwise as elementwise,
    index as index,
    recurrent as recurrent,
    reduce as reduce,
    shape as shape,
)
