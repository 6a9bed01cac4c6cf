"""The table: one row per tested call of every public op and every primitive."""

from tests.ops import (
    samples_contract,
    samples_elementwise,
    samples_image,
    samples_index,
    samples_linalg,
    samples_nn,
    samples_reduce,
    samples_shape,
    samples_special,
)

SAMPLES = [
    *samples_elementwise.SAMPLES,
    *samples_reduce.SAMPLES,
    *samples_shape.SAMPLES,
    *samples_index.SAMPLES,
    *samples_contract.SAMPLES,
    *samples_linalg.SAMPLES,
    *samples_nn.SAMPLES,
    *samples_image.SAMPLES,
    *samples_special.SAMPLES,
]
