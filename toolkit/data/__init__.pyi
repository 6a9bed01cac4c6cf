# Written by scripts/write_stubs; do not edit.
from toolkit.data.csv_files import CsvDataset as CsvDataset
from toolkit.data.dataset import (
    INFINITE_CARDINALITY as INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY,
    Dataset as Dataset,
    DatasetIterator as DatasetIterator,
)
from toolkit.data.examples import (
    FixedLenFeature as FixedLenFeature,
    VarLenFeature as VarLenFeature,
    make_example as make_example,
    parse_example as parse_example,
    parse_single_example as parse_single_example,
    read_example as read_example,
)
from toolkit.data.files import (
    FixedLengthRecordDataset as FixedLengthRecordDataset,
    TextLineDataset as TextLineDataset,
    TFRecordDataset as TFRecordDataset,
)
from toolkit.data.options import (
    AutotuneOptions as AutotuneOptions,
    Options as Options,
    ThreadingOptions as ThreadingOptions,
)
from toolkit.data.padding import Ragged as Ragged
from toolkit.data.prefetch import prefetched as prefetched
from toolkit.data.records import TFRecordWriter as TFRecordWriter
from toolkit.data.sequence_examples import (
    make_sequence_example as make_sequence_example,
    parse_sequence_example as parse_sequence_example,
    parse_single_sequence_example as parse_single_sequence_example,
    read_sequence_example as read_sequence_example,
)
from toolkit.data.stats import Stats as Stats
from toolkit.data.structure import TensorSpec as TensorSpec
from toolkit.data.tuning import AUTOTUNE as AUTOTUNE

__all__ = [
    "AUTOTUNE",
    "AutotuneOptions",
    "CsvDataset",
    "Dataset",
    "DatasetIterator",
    "FixedLenFeature",
    "FixedLengthRecordDataset",
    "INFINITE_CARDINALITY",
    "Options",
    "Ragged",
    "Stats",
    "TFRecordDataset",
    "TFRecordWriter",
    "TensorSpec",
    "TextLineDataset",
    "ThreadingOptions",
    "UNKNOWN_CARDINALITY",
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
