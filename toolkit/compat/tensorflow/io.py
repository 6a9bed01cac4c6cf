"""`tf.io` and `tf.train.Example`: records, examples, files and images."""

from __future__ import annotations

import glob as globbing
import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from toolkit import data, ops
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.data import as_tensors
from toolkit.compat.tensorflow.decoding import (
    decode_base64 as decode_base64,
    decode_csv as decode_csv,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
    parse_tensor as parse_tensor,
    serialize_tensor as serialize_tensor,
)
from toolkit.compat.tensorflow.image_files import (
    decode_bmp as decode_bmp,
    decode_gif as decode_gif,
    decode_image as decode_image,
    decode_jpeg as decode_jpeg,
    decode_png as decode_png,
    encode_jpeg as encode_jpeg,
    encode_png as encode_png,
    is_jpeg as is_jpeg,
)
from toolkit.compat.tensorflow.messages import (
    BytesList as BytesList,
    Example as Example,
    Feature as Feature,
    Features as Features,
    FloatList as FloatList,
    Int64List as Int64List,
)
from toolkit.compat.tensorflow.ragged import RaggedTensor
from toolkit.compat.tensorflow.sparse import SparseTensor
from toolkit.compat.tensorflow.string_tensors import (
    StringTensor,
    as_strings,
    to_single_bytes,
)
from toolkit.data import (
    FixedLenFeature as FixedLenFeature,
    VarLenFeature as VarLenFeature,
)
from toolkit.data.examples import (
    FixedLenSequenceFeature as FixedLenSequenceFeature,
)
from toolkit.errors import MalformedDataError, unknown_choice
from toolkit.type_aliases import TensorLike

__path__: list[str] = []  # makes submodules importable


def to_path(name: Any) -> str:
    """Convert a string, bytes, or a string tensor to a path."""
    name = name.numpy() if isinstance(name, StringTensor) else name
    return os.fsdecode(name)


class RaggedFeature(VarLenFeature):
    """A feature with a variable number of values: a tensor, and ragged rows in a batch.

    Args:
        dtype: of the values.
        value_key, partitions: only None and ().
        row_splits_dtype: only int64.
        validate: has no effect: the numbers of values are always checked.
    """

    def __init__(
        self,
        dtype: Any,
        value_key: None = None,
        partitions: Any = (),
        row_splits_dtype: Any = "int64",
        validate: bool = False,
    ) -> None:
        refuse(
            "RaggedFeature",
            value_key=(value_key, None),
            partitions=(tuple(partitions), ()),
            row_splits_dtype=(row_splits_dtype, "int64"),
        )
        super().__init__(dtype)


# --- records and examples -------------------------------------------------------------


class TFRecordOptions:
    """Options of record files.

    Args:
        compression_type: "GZIP", "ZLIB", or None.
        flush_mode, input_buffer_size, output_buffer_size, window_bits: have no effect.
        compression_method, mem_level, compression_strategy: have no effect.
        compression_level: from 0 to 9; None for the default.
    """

    def __init__(
        self,
        compression_type: str | None = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.compression_type = compression_type
        self.compression_level = compression_level


class TFRecordWriter(data.TFRecordWriter):
    """Writer of record files; options: TFRecordOptions, "GZIP", "ZLIB" or None."""

    def __init__(self, path: str, options: Any = None) -> None:
        level = None
        if isinstance(options, TFRecordOptions):
            level = options.compression_level
            options = options.compression_type
        super().__init__(to_path(path), options, -1 if level is None else int(level))

    def write(self, record: Any) -> None:
        """Append a record."""
        super().write(to_single_bytes(record, "TFRecordWriter.write"))


def parse_single_example(
    serialized: TensorLike,
    features: Any,
    example_names: object = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Parse the requested features of an Example to tensors.

    `example_names` has no effect: errors name the feature.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
        >>> example = tf.train.Example(
        ...     features=tf.train.Features(feature={"x": feature}))
        >>> wanted = {"x": tf.io.FixedLenFeature([], tf.int64)}
        >>> int(tf.io.parse_single_example(example.SerializeToString(), wanted)["x"])
        3
    """
    message = to_single_bytes(serialized, "parse_single_example")
    sorted_features = _sort_by_name(features)
    result = as_tensors(data.parse_single_example(message, sorted_features))
    return {name: _to_sparse(sorted_features[name], x) for name, x in result.items()}


def parse_example(
    serialized: TensorLike,
    features: Any,
    example_names: object = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Parse the features of a batch of Examples; a VarLenFeature is a sparse tensor.

    `example_names` has no effect: errors name the feature.
    """
    messages = np.asarray(as_strings(serialized)).ravel()
    sorted_features = _sort_by_name(features)
    result = as_tensors(data.parse_example(messages, sorted_features))
    return {name: _to_sparse(sorted_features[name], x) for name, x in result.items()}


def _to_sparse(feature: Any, values: Any) -> Any:
    """Return the values of a VarLenFeature as a sparse tensor, as in TensorFlow."""
    if type(feature) is not VarLenFeature:
        return values
    if isinstance(values, RaggedTensor):
        return values.to_sparse()
    indices = np.argwhere(np.ones(tuple(values.shape), bool))
    flat = values if len(values.shape) == 1 else ops.reshape(values, (-1,))
    return SparseTensor(indices, flat, tuple(values.shape))


def parse_single_sequence_example(
    serialized: TensorLike,
    context_features: Any = None,
    sequence_features: Any = None,
    example_name: object = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the context features and the step features of a SequenceExample.

    Args:
        serialized: the bytes of the message.
        context_features: name -> FixedLenFeature, VarLenFeature or RaggedFeature.
        sequence_features: name -> FixedLenSequenceFeature for (steps, ...),
            VarLenFeature for a SparseTensor (steps, longest), or RaggedFeature for a
            RaggedTensor.
        example_name: has no effect: errors name the feature.
    """
    message = to_single_bytes(serialized, "parse_single_sequence_example")
    sorted_features = [
        _sort_by_name(x or {}) for x in (context_features, sequence_features)
    ]
    context, steps = data.parse_single_sequence_example(message, *sorted_features)
    return _wrap_features(sorted_features[0], context), _wrap_features(
        sorted_features[1], steps
    )


def parse_sequence_example(
    serialized: TensorLike,
    context_features: Any = None,
    sequence_features: Any = None,
    example_names: object = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Parse the features of a batch of SequenceExamples; return also the lengths.

    The steps of a FixedLenSequenceFeature are padded with zeros; the third result has
    the lengths. Arguments are as in `parse_single_sequence_example`; `example_names`
    has no effect.
    """
    messages = np.asarray(as_strings(serialized)).ravel()
    sorted_features = [
        _sort_by_name(x or {}) for x in (context_features, sequence_features)
    ]
    context, steps, counts = data.parse_sequence_example(messages, *sorted_features)
    shown = (
        _wrap_features(sorted_features[0], context),
        _wrap_features(sorted_features[1], steps),
    )
    return *shown, as_tensors(counts)


def _wrap_features(features: Any, values: Any) -> dict[str, Any]:
    tensors = as_tensors(values)
    return {name: _to_sparse(features[name], x) for name, x in tensors.items()}


def decode_compressed(
    bytes: Any, compression_type: str = "", name: str | None = None
) -> Any:
    """Decompress strings; compression_type: "ZLIB", "GZIP" or "" for none."""
    strings = as_strings(bytes)
    unpack = {"": lambda x: x, "ZLIB": zlib.decompress, "GZIP": gzip.decompress}
    if compression_type not in unpack:
        raise unknown_choice(
            "decode_compressed: compression_type", compression_type, tuple(unpack)
        )
    try:
        unpacked = np.frompyfunc(unpack[compression_type], 1, 1)(np.asarray(strings))
    except (zlib.error, OSError, EOFError) as error:
        raise MalformedDataError(f"decode_compressed: {error}") from error
    return StringTensor(unpacked)


def _sort_by_name(features: Any) -> dict[str, Any]:
    """Sort features by their names, which is the order of the results."""
    return dict(sorted(features.items()))


# --- files ----------------------------------------------------------------------------


def read_file(filename: str | PathLike[str], name: str | None = None) -> StringTensor:
    """Read the bytes of a file."""
    return StringTensor(Path(to_path(filename)).read_bytes())


def write_file(
    filename: str | PathLike[str], contents: TensorLike, name: str | None = None
) -> None:
    """Write bytes to a file, and create its folder if it does not exist."""
    path = Path(to_path(filename))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_single_bytes(contents, "write_file"))


def matching_files(pattern: Any, name: str | None = None) -> StringTensor:
    """Return the names of the files that match a pattern, sorted."""
    return StringTensor(sorted(globbing.glob(to_path(pattern))))


def _walk(
    top: Any,
    topdown: bool = True,
    onerror: Callable[[OSError], object] | None = None,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (folder, names of folders, names of files) for a folder and all subfolders.

    Args:
        top: the folder; if it does not exist, there are no results.
        topdown: whether a folder is before its subfolders.
        onerror: called with the error for a folder that cannot be listed.
    """
    return os.walk(to_path(top), topdown, onerror)


def _rename(
    src: str | PathLike[str], dst: str | PathLike[str], overwrite: bool = False
) -> None:
    if os.path.exists(to_path(dst)) and not overwrite:
        raise FileExistsError(f"rename: {to_path(dst)} exists")
    os.replace(to_path(src), to_path(dst))


def _open(name: str, mode: str = "r") -> IO[Any]:
    """Open a file as TensorFlow does: UTF-8 text, with unchanged line ends."""
    if "b" in mode:
        return open(to_path(name), mode)
    return open(to_path(name), mode, encoding="utf-8", newline="\n")


def _copy(
    src: str | PathLike[str], dst: str | PathLike[str], overwrite: bool = False
) -> None:
    if os.path.exists(to_path(dst)) and not overwrite:
        raise FileExistsError(f"copy: {to_path(dst)} exists")
    shutil.copyfile(to_path(src), to_path(dst))


gfile: SimpleNamespace = SimpleNamespace(
    GFile=_open,
    copy=_copy,
    exists=lambda path: os.path.exists(to_path(path)),
    glob=lambda pattern: sorted(globbing.glob(to_path(pattern))),
    isdir=lambda path: os.path.isdir(to_path(path)),
    join=os.path.join,
    listdir=lambda path: os.listdir(to_path(path)),
    makedirs=lambda path: os.makedirs(to_path(path), exist_ok=True),
    mkdir=lambda path: os.mkdir(to_path(path)),
    remove=lambda path: os.remove(to_path(path)),
    rename=_rename,
    rmtree=lambda path: shutil.rmtree(to_path(path)),
    walk=_walk,
)
