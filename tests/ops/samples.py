"""The table: a row per call that every public op and every primitive is tested by."""

import importlib.util

from tests.ops import (
    samples_contract,
    samples_elementwise,
    samples_reduce,
    samples_shape,
)

SAMPLES = [
    *samples_elementwise.SAMPLES,
    *samples_reduce.SAMPLES,
    *samples_shape.SAMPLES,
    *samples_contract.SAMPLES,
]
if importlib.util.find_spec("tests.ops.samples_nn"):
    SAMPLES += getattr(importlib.import_module("tests.ops.samples_nn"), "SAMPLES", [])
