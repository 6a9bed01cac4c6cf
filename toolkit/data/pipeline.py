"""Registration of all stages of data sets."""

from toolkit.data import (
    array_sources as array_sources,
    batching as batching,
    caching as caching,
    combining as combining,
    elementwise as elementwise,
    error_handling as error_handling,
    generators as generators,
    grouping as grouping,
    interleave as interleave,
    local_shard as local_shard,
    mapping as mapping,
    order as order,
    prefetch as prefetch,
    resampling as resampling,
    sources as sources,
)
from toolkit.data.csv_files import CsvDataset as CsvDataset
from toolkit.data.dataset import (
    AUTOTUNE as AUTOTUNE,
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
