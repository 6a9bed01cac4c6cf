"""Data on its way into a model. Stands alone on NumPy.

What a data set needs is imported when the first one is made: models need but a part.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PIPELINE = (
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "AutotuneOptions",
    "CsvDataset",
    "Dataset",
    "DatasetIterator",
    "FixedLenFeature",
    "FixedLengthRecordDataset",
    "Options",
    "Ragged",
    "Stats",
    "TFRecordDataset",
    "TFRecordWriter",
    "TensorSpec",
    "TextLineDataset",
    "ThreadingOptions",
    "VarLenFeature",
    "make_example",
    "parse_example",
    "parse_single_example",
    "prefetched",
    "read_example",
)

__all__ = [*_PIPELINE]


def __getattr__(name: str) -> Any:
    if name not in _PIPELINE:
        raise AttributeError(f"module 'toolkit.data' has no attribute {name!r}")
    pipeline = import_module("toolkit.data.pipeline")
    globals().update({name: getattr(pipeline, name) for name in _PIPELINE})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
