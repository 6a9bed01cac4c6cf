"""`tf.strings`: the core's tensors hold numbers; these are arrays of bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.types import TensorShape, string
from toolkit.compat.tensorflow.views import convert
from toolkit.core import strings as core
from toolkit.errors import ArgumentError


class StringTensor(core.StringTensor):
    """The core's strings with TensorFlow's dtype and shape.

    Args:
        values: a string, bytes, or nested lists or an array of them.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.constant(["a", "b"]).numpy()
        array([b'a', b'b'], dtype=object)
    """

    dtype = string

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self._array.shape)

    def get_shape(self) -> TensorShape:
        """The extents."""
        return self.shape


def as_strings(value: Any) -> StringTensor:
    """Strings as a StringTensor."""
    return value if isinstance(value, StringTensor) else StringTensor(value)


def _each(function: Callable[..., Any], value: Any) -> Any:
    array = np.asarray(as_strings(value))
    return np.asarray(np.frompyfunc(function, 1, 1)(array), object)


def lower(input: Any, encoding: str = "", name: Any = None) -> StringTensor:
    """In small letters: those of ASCII, or all with encoding "utf-8"."""
    return StringTensor(_each(lambda s: _cased(s, encoding, "lower"), input))


def upper(input: Any, encoding: str = "", name: Any = None) -> StringTensor:
    """In capital letters: those of ASCII, or all with encoding "utf-8"."""
    return StringTensor(_each(lambda s: _cased(s, encoding, "upper"), input))


def _cased(value: bytes, encoding: str, case: str) -> Any:
    if encoding:
        return getattr(value.decode(encoding), case)().encode(encoding)
    return getattr(value, case)()


def strip(input: Any, name: Any = None) -> StringTensor:
    """Without white space at both ends."""
    return StringTensor(_each(bytes.strip, input))


def length(input: Any, unit: str = "BYTE", name: Any = None) -> Any:
    """How many bytes, or characters of UTF-8 with unit "UTF8_CHAR", there are."""
    if unit not in ("BYTE", "UTF8_CHAR"):
        raise ArgumentError(f"length: expected BYTE or UTF8_CHAR; received {unit!r}")
    measure = len if unit == "BYTE" else lambda s: len(s.decode())
    return convert(_each(measure, input).astype("int32"))


def substr(input: Any, pos: int, len: int, name: Any = None) -> StringTensor:
    """`len` bytes from `pos` on."""
    stop = None if pos < 0 and pos + len >= 0 else pos + len
    return StringTensor(_each(lambda s: s[pos:stop], input))


def join(inputs: Any, separator: str = "", name: Any = None) -> StringTensor:
    """Strings of the same places put together."""
    arrays = np.broadcast_arrays(*(np.asarray(as_strings(x)) for x in inputs))
    between = separator.encode()
    flat = [between.join(row) for row in zip(*(a.ravel() for a in arrays), strict=True)]
    joined = np.empty(arrays[0].size, object)
    joined[:] = flat
    return StringTensor(joined.reshape(arrays[0].shape))


def reduce_join(
    inputs: Any,
    axis: int | None = None,
    keepdims: bool = False,
    separator: str = "",
    name: Any = None,
) -> StringTensor:
    """The strings along an axis put together."""
    array = np.asarray(as_strings(inputs))
    if axis is None:
        array, axis = array.reshape(-1), 0
    joined = join(list(np.moveaxis(array, axis, 0)), separator)
    return StringTensor(np.expand_dims(joined, axis)) if keepdims else joined


def regex_replace(
    input: Any,
    pattern: str,
    rewrite: str,
    replace_global: bool = True,
    name: Any = None,
) -> StringTensor:
    """With matches of a pattern written anew."""
    compiled, times = re.compile(pattern.encode()), 0 if replace_global else 1
    return StringTensor(
        _each(lambda s: compiled.sub(rewrite.encode(), s, times), input)
    )


def regex_full_match(input: Any, pattern: str, name: Any = None) -> Any:
    """Whether a pattern matches the whole string."""
    compiled = re.compile(pattern.encode())
    found = _each(lambda s: compiled.fullmatch(s) is not None, input)
    return convert(found.astype(bool))


def split(
    input: Any, sep: str | None = None, maxsplit: int = -1, name: Any = None
) -> StringTensor:
    """The parts of a string between separators, or between white space.

    Of several strings, these must have as many parts each: there are no ragged ones.
    """
    between = sep.encode() if sep else None
    parts = _each(lambda s: s.split(between, maxsplit), input)
    if not parts.ndim:
        return StringTensor(parts[()])
    if len({len(row) for row in parts.ravel()}) > 1:
        raise ArgumentError("strings.split: expected strings of as many parts each")
    return StringTensor(parts.tolist())


def bytes_split(input: Any, name: Any = None) -> StringTensor:
    """The bytes of a string, each alone."""
    data = as_strings(input).numpy()
    return StringTensor([data[i : i + 1] for i in range(len(data))])


def to_number(input: Any, out_type: Any = "float32", name: Any = None) -> Any:
    """The numbers that the strings show."""
    return convert(_each(float, input).astype(str(out_type)))


def as_string(input: Any, precision: int = -1, name: Any = None) -> StringTensor:
    """Numbers as strings, floats with six digits after the point, or as said."""
    digits = 6 if precision < 0 else precision

    def shown(value: Any) -> str:
        if isinstance(value, (bool, np.bool_)):
            return str(bool(value)).lower()
        return f"{value:.{digits}f}" if isinstance(value, float) else str(value)

    array = np.asarray(convert(input)).astype(object)
    return StringTensor(np.asarray(np.frompyfunc(shown, 1, 1)(array), object))
