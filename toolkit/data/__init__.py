"""Data on its way into a model. Stands alone on NumPy."""

from toolkit.data import (
    ahead,
    batching,
    caching,
    combining,
    elementwise,
    interleave,
    order,
    sources,
)
from toolkit.data.arrays import ArrayBatches
from toolkit.data.dataset import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    DatasetIterator,
)
from toolkit.data.options import Options
from toolkit.data.padding import Ragged
from toolkit.data.structure import TensorSpec

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArrayBatches",
    "Dataset",
    "DatasetIterator",
    "Options",
    "Ragged",
    "TensorSpec",
]
