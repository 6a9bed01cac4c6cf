"""`tf.strings`: operations on strings as arrays of bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.compat.tensorflow.printing import format_value
from toolkit.compat.tensorflow.ragged import RaggedTensor
from toolkit.compat.tensorflow.ragged_operations import map_flat
from toolkit.compat.tensorflow.regular_expressions import (
    compile_pattern,
    parse_rewrite,
)
from toolkit.compat.tensorflow.string_parts import (
    Numbers,
    Strings as Strings,
    bytes_split as bytes_split,
    ngrams as ngrams,
    split as split,
    unicode_decode as unicode_decode,
    unicode_decode_with_offsets as unicode_decode_with_offsets,
    unicode_encode as unicode_encode,
    unicode_split as unicode_split,
    unicode_split_with_offsets as unicode_split_with_offsets,
    unicode_transcode as unicode_transcode,
)
from toolkit.compat.tensorflow.string_tensors import (
    StringTensor as StringTensor,
    as_strings as as_strings,
    map_strings,
    object_array,
    to_bytes_array,
    to_text,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.strings import decode_bytes, encode_text, is_string
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, UnsupportedError
from toolkit.layers.preprocessing.string_hashes import farm_hash, sip_hash
from toolkit.reading.text import parse_number
from toolkit.type_aliases import Array, DTypeLike, TensorLike


def lower(input: TensorLike, encoding: str = "", name: str | None = None) -> Strings:
    """Convert to lower case: only ASCII, or all letters with encoding "utf-8"."""
    return map_strings(lambda s: _make_case_change(s, encoding, "lower"), input)


def upper(input: TensorLike, encoding: str = "", name: str | None = None) -> Strings:
    """Convert to upper case: only ASCII, or all letters with encoding "utf-8"."""
    return map_strings(lambda s: _make_case_change(s, encoding, "upper"), input)


def _make_case_change(value: bytes, encoding: str, case: str) -> bytes:
    if encoding:
        return getattr(value.decode(encoding), case)().encode(encoding)
    return getattr(value, case)()


def strip(input: TensorLike, name: str | None = None) -> Strings:
    """Remove white space at both ends."""
    return map_strings(bytes.strip, input)


def length(input: TensorLike, unit: str = "BYTE", name: str | None = None) -> Numbers:
    """Return the number of bytes, or of UTF-8 characters with unit "UTF8_CHAR"."""
    into, _ = _unit_codec("length", unit)
    return map_strings(lambda s: len(into(s)), input, partial(_numbers, dtype="int32"))


def _unit_codec(
    function: str, unit: str
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions from bytes to a sequence of units, and back."""
    if unit == "BYTE":
        return bytes, bytes
    if unit == "UTF8_CHAR":
        return decode_bytes, encode_text
    raise ArgumentError(f"{function}: expected BYTE or UTF8_CHAR; received {unit!r}")


def _numbers(array: Array, dtype: str) -> Tensor:
    return convert(array.astype(dtype))


def substr(
    input: TensorLike, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None
) -> StringTensor:
    """Return `len` bytes, or characters, from `pos` on.

    Args:
        input: strings.
        pos: the start; below 0: from the end.
        len: the maximum length; below 0: up to the end.
        unit: "BYTE", or "UTF8_CHAR" for characters.

    Raises:
        ArgumentError: a string is shorter than `pos`.
    """
    array, starts, counts = to_bytes_array(input), np.asarray(pos), np.asarray(len)
    if starts.shape != counts.shape:
        raise ShapeError(
            f"substr: expected pos and len of one shape; received {starts.shape} and "
            f"{counts.shape}"
        )
    into, back = _unit_codec("substr", unit)

    def cut(text: bytes, start: int, count: int) -> bytes:
        units = into(text)
        size = units.__len__()
        if not -size <= start <= size:
            raise ArgumentError(
                f"substr: expected pos in [{-size}, {size}] for {text!r}; received "
                f"{start}"
            )
        start = start % size if start < 0 else start
        return back(units[start : None if count < 0 else start + count])

    return StringTensor(np.asarray(np.frompyfunc(cut, 3, 1)(array, starts, counts)))


def join(inputs: Any, separator: str = "", name: str | None = None) -> StringTensor:
    """Concatenate strings elementwise, also in ragged rows."""
    rows = next((x for x in inputs if isinstance(x, RaggedTensor)), None)
    if rows is not None:
        return map_flat(lambda *inputs_list: join(inputs_list, separator), inputs, {})
    arrays = np.broadcast_arrays(*map(to_bytes_array, inputs))
    between = separator.encode()
    flat = [between.join(row) for row in zip(*(a.ravel() for a in arrays), strict=True)]
    return StringTensor(object_array(flat, arrays[0].shape))


def reduce_join(
    inputs: TensorLike,
    axis: int | None = None,
    keepdims: bool = False,
    separator: str = "",
    name: str | None = None,
) -> StringTensor:
    """Concatenate the strings along an axis.

    Args:
        inputs: strings, or ragged rows of strings.
        axis: None for all; for ragged rows only the last.
        keepdims: whether the axis stays, with extent 1.
        separator: between the strings.
    """
    if isinstance(inputs, RaggedTensor):
        if axis not in (1, -1):
            raise UnsupportedError(
                "reduce_join: only axis=-1 is supported for ragged rows; received "
                f"{axis}"
            )
        rows = [separator.encode().join(row) for row in inputs.to_list()]
        joined = StringTensor(object_array(rows, (len(rows),)))
        return joined[:, None] if keepdims else joined
    array = to_bytes_array(inputs)
    if axis is None:
        array, axis = array.reshape(-1), 0
    joined = join(list(np.moveaxis(array, axis, 0)), separator)
    return StringTensor(np.expand_dims(joined, axis)) if keepdims else joined


def unsorted_segment_join(
    inputs: TensorLike,
    segment_ids: TensorLike,
    num_segments: Any,
    separator: str = "",
    name: str | None = None,
) -> StringTensor:
    """Concatenate the strings of each segment.

    Args:
        inputs: a vector of strings.
        segment_ids: the segment of each string.
        num_segments: the number of segments.
        separator: between the strings.
    """
    array, numbers = to_bytes_array(inputs), np.asarray(convert(segment_ids))
    count = int(num_segments)
    if array.ndim != 1 or array.shape != numbers.shape:
        raise ShapeError(
            "unsorted_segment_join: expected a vector of strings and a segment id "
            f"for each; received shapes {array.shape} and {numbers.shape}"
        )
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
        raise ArgumentError(
            f"unsorted_segment_join: expected segment ids in [0, {count}); received "
            f"{numbers.tolist()!r:.60}"
        )
    strings: list[list[bytes]] = [[] for _ in range(count)]
    for text, number in zip(array.tolist(), numbers.tolist(), strict=True):
        strings[number].append(text)
    joined = [separator.encode().join(row) for row in strings]
    return StringTensor(object_array(joined, (count,)))


def format(
    template: str,
    inputs: TensorLike,
    placeholder: str = "{}",
    summarize: int = 3,
    name: str | None = None,
) -> StringTensor:
    """Replace the placeholders of a template by tensors, in the form of `tf.print`.

    Args:
        template: the text.
        inputs: a tensor, or a list with one per placeholder.
        placeholder: the placeholder in the template.
        summarize: the number of elements to show at each end of each axis; -1 for all.
    """
    tensors = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    first, *remaining_texts = template.split(placeholder)
    if len(remaining_texts) != len(tensors):
        raise ArgumentError(
            f"format: expected a tensor for each of {len(remaining_texts)} "
            f"placeholders in {template!r}; received {len(tensors)}"
        )
    texts = [
        format_value(as_strings(x) if is_string(x) else convert(x), summarize)
        for x in tensors
    ]
    pairs = zip(texts, remaining_texts, strict=True)
    return StringTensor(
        first + "".join(text + text_after for text, text_after in pairs)
    )


# --- hashes ---------------------------------------------------------------------------


def to_hash_bucket_fast(
    input: TensorLike, num_buckets: int, name: str | None = None
) -> Numbers:
    """Hash strings to numbers below `num_buckets` by FarmHash64."""
    return _buckets("to_hash_bucket_fast", farm_hash, input, num_buckets)


def to_hash_bucket_strong(
    input: TensorLike, num_buckets: int, key: Any, name: str | None = None
) -> Numbers:
    """Hash strings to numbers below `num_buckets` by SipHash with a secret key.

    Args:
        input: strings.
        num_buckets: the number of hash values.
        key: two integers.
    """
    first, second = (int(word) % 2**64 for word in key)
    return _buckets(
        "to_hash_bucket_strong",
        lambda text: sip_hash(text, (first, second)),
        input,
        num_buckets,
    )


def _buckets(
    function: str, hashed: Callable[[bytes], int], input: TensorLike, count: int
) -> Any:
    if int(count) < 1:
        raise ArgumentError(f"{function}: expected num_buckets >= 1; received {count}")
    return map_strings(
        lambda text: hashed(text) % int(count), input, partial(_numbers, dtype="int64")
    )


# --- regular expressions --------------------------------------------------------------


def regex_replace(
    input: TensorLike,
    pattern: Any,
    rewrite: Any,
    replace_global: bool = True,
    name: str | None = None,
) -> Strings:
    r"""Replace the matches of a pattern.

    Args:
        input: strings of UTF-8.
        pattern: in RE2 syntax. Without the extra `regex`, `\p{...}` accepts general
            categories such as `L` and `Lu`, but no scripts, and a pattern such as
            `(a+)+b` can take very long.
        rewrite: the replacement; `\0` is the match, `\1` to `\9` its groups.
        replace_global: whether to replace all matches, or only the first.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.strings.regex_replace("hi!", "[?!]", r" \0 ").numpy()
        b'hi ! '
    """
    function = "regex_replace"
    expression = compile_pattern(to_text(pattern, function), function)
    pieces = parse_rewrite(to_text(rewrite, function), expression.groups, function)
    return map_strings(
        lambda data: expression.replace(data, pieces, not replace_global), input
    )


def regex_full_match(
    input: TensorLike, pattern: Any, name: str | None = None
) -> Numbers:
    """Return whether a pattern, in RE2 syntax, matches the whole string."""
    function = "regex_full_match"
    expression = compile_pattern(to_text(pattern, function), function)
    return map_strings(expression.is_full_match, input, partial(_numbers, dtype="bool"))


# --- numbers --------------------------------------------------------------------------

_NUMBERS = ("float32", "float64", "int32", "int64", "uint32", "uint64")
_INTEGER, _HEXADECIMAL = re.compile(rb"[+-]?\d+"), re.compile(rb"[+-]?0[xX]")


def to_number(
    input: TensorLike, out_type: DTypeLike = "float32", name: str | None = None
) -> Numbers:
    """Parse strings as numbers.

    Args:
        input: strings; white space at both ends is ignored.
        out_type: float32, float64, int32, int64, uint32 or uint64.

    Raises:
        ArgumentError: a string is not a number of this dtype.
    """
    dtype = dtypes.standardize(out_type)
    if dtype not in _NUMBERS:
        raise ArgumentError(
            f"to_number: out_type: expected one of {', '.join(_NUMBERS)}; received "
            f"{dtype}"
        )
    read = _float if dtypes.is_float(dtype) else partial(_integer, dtype=dtype)

    def number(text: bytes) -> Any:
        value = read(text.strip())
        if value is None:
            raise ArgumentError(
                f"to_number: expected a string that shows a number of {dtype}; "
                f"received {text!r}"
            )
        return value

    return map_strings(number, input, partial(_numbers, dtype=dtype))


def _integer(text: bytes, dtype: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    fits = dtypes.lowest(dtype) <= int(text) <= dtypes.highest(dtype)
    return int(text) if fits else None


def _float(text: bytes) -> float | None:
    try:
        if _HEXADECIMAL.match(text):
            return float.fromhex(text.decode())
        return parse_number(float, text)
    except ValueError:
        return None


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> StringTensor:
    """Convert numbers to strings.

    Args:
        input: numbers or strings, which do not change.
        precision: the number of decimals of floats; below 0: 6.
        scientific: whether floats have an exponent.
        shortest: whether to select the shorter form, without trailing zeros.
        width: the minimum width; it does not apply to bools.
        fill: the padding: "", " " or "0"; "-": spaces at the end, "+": spaces, and
            always a sign.
    """
    if isinstance(input, RaggedTensor):
        options = (precision, scientific, shortest, width, fill)
        return map_flat(as_string, (input, *options), {})
    if is_string(input):
        return as_strings(input)
    array = np.asarray(convert(input))
    kind = array.dtype.kind
    if scientific and shortest:
        raise ArgumentError("as_string: expected one of scientific and shortest")
    if fill not in ("", " ", "0", "-", "+"):
        raise ArgumentError(
            f'as_string: fill: expected "", " ", "0", "-" or "+"; received {fill!r}'
        )
    if precision >= 0 and kind in "iub":
        raise ArgumentError(
            f"as_string: expected floats, or no precision; received {array.dtype}"
        )
    if kind == "b":
        return StringTensor(np.where(array, b"true", b"false").astype(object))
    form = f"%{fill}{width if width >= 0 else ''}"
    form += f".{precision}" if precision >= 0 else ""
    form += "d" if kind in "iu" else "e" if scientific else "g" if shortest else "f"

    def shown(value: TensorLike) -> str:
        if isinstance(value, complex):
            return f"({form % value.real},{form % value.imag})"
        return form % value

    return StringTensor(
        object_array([shown(x) for x in array.ravel().tolist()], array.shape)
    )
