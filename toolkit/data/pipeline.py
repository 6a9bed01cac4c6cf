"""Registration of all stages of data sets."""

from toolkit.data import (
    array_sources,
    batching,
    caching,
    combining,
    elementwise,
    error_handling,
    generators,
    grouping,
    interleave,
    local_shard,
    order,
    prefetch,
    resampling,
    sources,
)
from toolkit.data.csv_files import CsvDataset
from toolkit.data.dataset import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    DatasetIterator,
)
from toolkit.data.examples import (
    FixedLenFeature,
    VarLenFeature,
    make_example,
    parse_example,
    parse_single_example,
    read_example,
)
from toolkit.data.files import (
    FixedLengthRecordDataset,
    TextLineDataset,
    TFRecordDataset,
)
from toolkit.data.options import AutotuneOptions, Options, ThreadingOptions
from toolkit.data.padding import Ragged
from toolkit.data.prefetch import prefetched
from toolkit.data.records import TFRecordWriter
from toolkit.data.sequence_examples import (
    make_sequence_example,
    parse_sequence_example,
    parse_single_sequence_example,
    read_sequence_example,
)
from toolkit.data.stats import Stats
from toolkit.data.structure import TensorSpec

# Modules that add methods to Data set.
STAGES = (
    batching,
    caching,
    combining,
    elementwise,
    error_handling,
    generators,
    grouping,
    interleave,
    local_shard,
    order,
    prefetch,
    resampling,
    sources,
    array_sources,
)

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
