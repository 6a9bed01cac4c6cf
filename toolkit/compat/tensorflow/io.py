"""`tf.io` and `tf.train.Example`: records, examples, files and images."""

from __future__ import annotations

import base64
import glob as globbing
import io
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from toolkit import data, dtypes, ops
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.data import as_tensors
from toolkit.compat.tensorflow.string_tensors import StringTensor, as_strings
from toolkit.compat.tensorflow.views import convert
from toolkit.core.tensor import Tensor
from toolkit.data import (
    FixedLenFeature as FixedLenFeature,
    VarLenFeature as VarLenFeature,
)
from toolkit.errors import ArgumentError
from toolkit.utils.images import array_to_img, img_to_array, load_img


def _path(name: Any) -> str:
    """A path of a string, bytes, or a string tensor."""
    name = name.numpy() if isinstance(name, StringTensor) else name
    return os.fsdecode(name)


def _bytes(contents: Any) -> bytes:
    return as_strings(contents).numpy()


# --- records and examples -------------------------------------------------------------


class TFRecordOptions:
    """How records are written: compression_type "GZIP" or None."""

    def __init__(self, compression_type: str | None = None) -> None:
        self.compression_type = compression_type


class TFRecordWriter(data.TFRecordWriter):
    """Writes records to a file; options: TFRecordOptions, "GZIP" or None."""

    def __init__(self, path: Any, options: Any = None) -> None:
        if isinstance(options, TFRecordOptions):
            options = options.compression_type
        super().__init__(_path(path), options)

    def write(self, record: Any) -> None:
        """Append a record."""
        super().write(_bytes(record))


def parse_single_example(
    serialized: Any, features: Any, example_names: Any = None, name: Any = None
) -> dict[str, Any]:
    """The features of an Example that are asked for, as tensors.

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
    return as_tensors(data.parse_single_example(_bytes(serialized), features))


def parse_example(
    serialized: Any, features: Any, example_names: Any = None, name: Any = None
) -> dict[str, Any]:
    """The features of a batch of Examples; Ragged of those that vary.

    `example_names` has no effect: errors name the feature.
    """
    messages = np.asarray(as_strings(serialized)).ravel()
    return as_tensors(data.parse_example(messages, features))


class _List:
    """Values of a feature."""

    def __init__(self, value: Any = ()) -> None:
        self.value: list[Any] = list(value)


class BytesList(_List):
    """Bytes of a feature."""


class FloatList(_List):
    """Floats of a feature."""


class Int64List(_List):
    """Integers of a feature."""


class Feature:
    """A list of values, given as one of its kinds."""

    def __init__(
        self,
        bytes_list: BytesList | None = None,
        float_list: FloatList | None = None,
        int64_list: Int64List | None = None,
    ) -> None:
        given = [x for x in (bytes_list, float_list, int64_list) if x is not None]
        if len(given) != 1:
            raise ArgumentError(f"Feature: expected one list; received {len(given)}")
        self.bytes_list: BytesList = bytes_list or BytesList()
        self.float_list: FloatList = float_list or FloatList()
        self.int64_list: Int64List = int64_list or Int64List()

    def values(self) -> Any:
        """The values as the core takes them."""
        if self.bytes_list.value:
            return [_bytes(value) for value in self.bytes_list.value]
        if self.float_list.value:
            return np.asarray(self.float_list.value, "float32")
        return np.asarray(self.int64_list.value, "int64")


class Features:
    """Names and their features."""

    def __init__(self, feature: dict[str, Feature] | None = None) -> None:
        self.feature: dict[str, Feature] = dict(feature or {})


class Example:
    """What a record holds: named features."""

    def __init__(self, features: Features | None = None) -> None:
        self.features: Features = features or Features()

    def SerializeToString(self) -> bytes:
        """The message, to be written as a record."""
        return data.make_example(
            {name: f.values() for name, f in self.features.feature.items()}
        )

    @classmethod
    def FromString(cls, serialized: bytes) -> Example:
        """An Example of its message."""
        features = {}
        for name, values in data.read_example(serialized).items():
            kind, items = values.dtype.kind, values.tolist()
            features[name] = Feature(
                BytesList(items) if kind == "O" else None,
                FloatList(items) if kind == "f" else None,
                Int64List(items) if kind == "i" else None,
            )
        return cls(Features(features))

    def ParseFromString(self, serialized: bytes) -> None:
        """Take the features of a message."""
        self.features = self.FromString(_bytes(serialized)).features


# --- files ----------------------------------------------------------------------------


def read_file(filename: Any, name: Any = None) -> StringTensor:
    """The bytes of a file."""
    return StringTensor(Path(_path(filename)).read_bytes())


def write_file(filename: Any, contents: Any, name: Any = None) -> None:
    """Write the bytes of a file."""
    Path(_path(filename)).write_bytes(_bytes(contents))


def matching_files(pattern: Any, name: Any = None) -> StringTensor:
    """The names of the files that a pattern fits, sorted."""
    return StringTensor(sorted(globbing.glob(_path(pattern))))


def _walk(top: Any) -> Any:
    return os.walk(_path(top))


def _rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"rename: {_path(dst)} exists")
    os.replace(_path(src), _path(dst))


def _opened(name: Any, mode: str = "r") -> IO[Any]:
    """A file as TensorFlow opens it: text is UTF-8, and ends of lines stay as is."""
    if "b" in mode:
        return open(_path(name), mode)
    return open(_path(name), mode, encoding="utf-8", newline="\n")


def _copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"copy: {_path(dst)} exists")
    shutil.copyfile(_path(src), _path(dst))


gfile: SimpleNamespace = SimpleNamespace(
    GFile=_opened,
    copy=_copy,
    exists=lambda path: os.path.exists(_path(path)),
    glob=lambda pattern: sorted(globbing.glob(_path(pattern))),
    isdir=lambda path: os.path.isdir(_path(path)),
    join=os.path.join,
    listdir=lambda path: os.listdir(_path(path)),
    makedirs=lambda path: os.makedirs(_path(path), exist_ok=True),
    mkdir=lambda path: os.mkdir(_path(path)),
    remove=lambda path: os.remove(_path(path)),
    rename=_rename,
    rmtree=lambda path: shutil.rmtree(_path(path)),
    walk=_walk,
)


# --- decoding -------------------------------------------------------------------------


def decode_raw(
    input_bytes: Any,
    out_type: Any,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: Any = None,
) -> Tensor:
    """The numbers whose bytes these are."""
    refuse("decode_raw", fixed_length=(fixed_length, None))
    dtype = dtypes.numpy_dtype(dtypes.standardize(out_type))
    stored = dtype.newbyteorder("<" if little_endian else ">")
    return convert(np.frombuffer(_bytes(input_bytes), stored).astype(dtype))


_MODES = {1: "grayscale", 3: "rgb", 4: "rgba"}


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = "uint8",
    name: Any = None,
    expand_animations: bool = True,
) -> Tensor:
    """The pixels of an image file, in [0, 255] or, as floats, in [0, 1].

    Args:
        contents: the bytes of the file.
        channels: 1, 3 or 4; None or 0: 3.
        dtype: uint8 or a floating dtype.
        expand_animations: has no effect: of an animation the first picture is taken.
    """
    mode = _MODES[channels or 3]
    picture = load_img(io.BytesIO(_bytes(contents)), color_mode=mode)
    pixels = convert(img_to_array(picture, "channels_last", "uint8"))
    dtype = dtypes.standardize(dtype)
    if dtype == "uint8":
        return pixels
    return ops.cast(pixels, dtype) / 255


def decode_jpeg(contents: Any, channels: int = 0, name: Any = None) -> Tensor:
    """The pixels of a JPEG file; uint8."""
    return decode_image(contents, channels)


def decode_png(
    contents: Any, channels: int = 0, dtype: Any = "uint8", name: Any = None
) -> Tensor:
    """The pixels of a PNG file."""
    return decode_image(contents, channels, dtype)


def decode_bmp(contents: Any, channels: int = 0, name: Any = None) -> Tensor:
    """The pixels of a BMP file; uint8."""
    return decode_image(contents, channels)


def decode_gif(contents: Any, name: Any = None) -> Tensor:
    """The pixels of a GIF file, in a batch of one: its first picture."""
    return decode_image(contents)[None]


def encode_base64(input: Any, pad: bool = False, name: Any = None) -> StringTensor:
    """Bytes in letters that may stand in addresses, without `=` at the end."""
    text = base64.urlsafe_b64encode(_bytes(input))
    return StringTensor(text if pad else text.rstrip(b"="))


def decode_base64(input: Any, name: Any = None) -> StringTensor:
    """The bytes that `encode_base64` was given."""
    text = _bytes(input)
    return StringTensor(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))


def _encode(image: Any, kind: str) -> StringTensor:
    file = io.BytesIO()
    array_to_img(convert(image).numpy(), "channels_last", scale=False).save(file, kind)
    return StringTensor(file.getvalue())


def encode_png(image: Any, compression: int = -1, name: Any = None) -> StringTensor:
    """The bytes of a PNG file of these pixels."""
    refuse("encode_png", compression=(compression, -1))
    return _encode(image, "PNG")


def encode_jpeg(image: Any, name: Any = None) -> StringTensor:
    """The bytes of a JPEG file of these pixels."""
    return _encode(image, "JPEG")
