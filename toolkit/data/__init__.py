"""Input pipelines for models. This package depends only on NumPy.

The modules of the pipeline are imported at the construction of the first data set,
because models need only some of them.
"""

from __future__ import annotations

from toolkit.data.stage_registry import set_importer
from toolkit.definitions.namespaces import lazy_namespace

__all__ = [
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
    "make_sequence_example",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "prefetched",
    "read_example",
    "read_sequence_example",
]

__getattr__, __dir__ = lazy_namespace(__name__, {"toolkit.data.pipeline": __all__})

# The module of each public name imports all stages.
set_importer(lambda: __getattr__("Dataset"))
