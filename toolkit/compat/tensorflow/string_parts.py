"""Parts of strings: words, bytes, characters and n-grams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from toolkit.compat.tensorflow.ragged import RaggedTensor
from toolkit.compat.tensorflow.string_tensors import (
    StringTensor,
    map_strings,
    map_to_array,
    object_array,
    to_bytes_array,
    to_text,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, DTypeError, UnsupportedError, unknown_choice
from toolkit.type_aliases import TensorLike

# the same number of strings as in the input
Strings: TypeAlias = StringTensor | RaggedTensor
Numbers: TypeAlias = Tensor | RaggedTensor


def split(
    input: TensorLike, sep: Any = None, maxsplit: int = -1, name: str | None = None
) -> Strings:
    """Split strings at separators, or at white space.

    Args:
        input: a string, for a tensor of parts, or a vector, for ragged rows.
        sep: the separator; None or "": white space.
        maxsplit: the maximum number of splits; below 0: unlimited.
    """
    between = None if sep is None else to_text(sep, "split").encode() or None
    return split_strings("split", lambda s: s.split(between, maxsplit), input)


def bytes_split(input: TensorLike, name: str | None = None) -> Strings:
    """Split strings into bytes; a vector of strings gives ragged rows."""
    return split_strings(
        "bytes_split", lambda s: [s[i : i + 1] for i in range(len(s))], input
    )


def split_strings(
    function: str,
    splitter: Callable[[bytes], list[Any]],
    input: Any,
    build: Callable[[Any], Any] = StringTensor,
) -> Any:
    """Split a string into a tensor, or a vector into ragged rows.

    Args:
        function: its name in errors.
        splitter: splits bytes.
        input: a string, or a vector of strings.
        build: creates a tensor from an array of parts.
    """
    if isinstance(input, RaggedTensor):
        rows = split_strings(function, splitter, input.flat_values, build)
        return input.with_flat_values(rows)
    if to_bytes_array(input).ndim > 1:
        raise UnsupportedError(
            f"{function}: expected a string or a vector of them; received strings of "
            f"{getattr(input, 'ndim', 2)} axes, which would need nested ragged rows"
        )
    rows = map_to_array(splitter, input)
    if not rows.ndim:
        return build(object_array(rows[()], (len(rows[()]),)))
    flat = [piece for row in rows for piece in row]
    values = np.asarray(build(object_array(flat, (len(flat),))))
    return RaggedTensor.from_row_lengths(values, list(map(len, rows)))


# --- characters -----------------------------------------------------------------------

_ENCODINGS = ("UTF-8", "UTF-16-BE", "UTF-32-BE")
_ERRORS = ("replace", "ignore", "strict")


class Coding(NamedTuple):
    """The conversion of bytes to characters.

    Args:
        function: its name in messages.
        encoding: UTF-8, UTF-16-BE or UTF-32-BE.
        errors: the treatment of invalid bytes: "replace", "ignore" or "strict", which
            raises an error.
        replacement_char: the code of the replacement.
        replace_control_characters: whether to replace characters below a space.
    """

    function: str
    encoding: str
    errors: str
    replacement_char: int
    replace_control_characters: bool

    def validate(self) -> Coding:
        """Return self after a check of the arguments; "UTF8" is "UTF-8"."""
        if self.encoding.upper().startswith("UTF") and "-" not in self.encoding:
            number, _, order = self.encoding.upper()[3:].partition("_")
            named = "-".join(filter(None, ("UTF", number, order)))
            return self._replace(encoding=named).validate()
        for name, value, supported in (
            ("encoding", self.encoding, _ENCODINGS),
            ("errors", self.errors, _ERRORS),
        ):
            if value not in supported:
                raise unknown_choice(f"{self.function}: {name}", value, supported)
        return self

    def characters(self, data: bytes) -> list[tuple[str, int]]:
        """Return the characters, each with the offset of its first byte."""
        result: list[tuple[str, int]] = []
        view, offset = memoryview(data), 0
        while offset < len(data):
            try:
                text, end, bad = str(view[offset:], self.encoding), len(data), 0
            except UnicodeDecodeError as error:
                end, bad = offset + error.start, error.end - error.start
                text = str(view[offset:end], self.encoding)
            for character in text:
                result.append((self._shown(character), offset))
                offset += len(character.encode(self.encoding))
            if bad:
                self._check(f"the bytes {data[end : end + bad]!r}")
                if self.errors == "replace":
                    result.append((chr(self.replacement_char), end))
                offset = end + bad
        return result

    def encode(self, codes: list[int]) -> bytes:
        """Return the bytes of characters, by their codes."""
        text = []
        for code in codes:
            if 0 <= code < 0xD800 or 0xE000 <= code <= 0x10FFFF:
                text.append(chr(code))
                continue
            self._check(f"the code {code}")
            if self.errors == "replace":
                text.append(chr(self.replacement_char))
        return "".join(text).encode(self.encoding)

    def _shown(self, character: str) -> str:
        is_replaced = self.replace_control_characters and character < " "
        return chr(self.replacement_char) if is_replaced else character

    def _check(self, problem: str) -> None:
        if self.errors == "strict":
            raise ArgumentError(
                f"{self.function}: expected characters of {self.encoding}; received "
                f"invalid {problem}"
            )


def unicode_split(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> Strings:
    """Split a string into UTF-8 characters; a vector of strings gives ragged rows.

    Args:
        input: a string, or a vector of strings.
        input_encoding: UTF-8, UTF-16-BE or UTF-32-BE; also the encoding of the results.
        errors: the treatment of invalid bytes: "replace", "ignore" or "strict".
        replacement_char: the code of the replacement.
    """
    coding = Coding("unicode_split", input_encoding, errors, replacement_char, False)
    return _split(coding, input)


def _split(coding: Coding, input: TensorLike) -> Any:
    def characters(data: bytes) -> list[bytes]:
        characters = coding.validate().characters(data)
        return [character.encode(coding.encoding) for character, _ in characters]

    return split_strings(coding.function, characters, input)


def _codes(coding: Coding, input: TensorLike) -> Any:
    def codes(data: bytes) -> list[int]:
        return [ord(character) for character, _ in coding.validate().characters(data)]

    return split_strings(coding.function, codes, input, _numbers("int32"))


def _offsets(coding: Coding, input: TensorLike) -> Any:
    def offsets(data: bytes) -> list[int]:
        return [offset for _, offset in coding.validate().characters(data)]

    return split_strings(coding.function, offsets, input, _numbers("int64"))


def _numbers(dtype: str) -> Callable[[Any], Any]:
    return lambda array: convert(array.astype(dtype))


def unicode_split_with_offsets(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> tuple[Strings, Numbers]:
    """Return the results of `unicode_split` and the byte offsets of the characters;
    int64."""
    function = "unicode_split_with_offsets"
    coding = Coding(function, input_encoding, errors, replacement_char, False)
    return _split(coding, input), _offsets(coding, input)


def unicode_decode(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Numbers:
    """Return the codes of characters, int32; a vector of strings gives ragged rows.

    Args:
        input: a string, or a vector of strings.
        input_encoding: UTF-8, UTF-16-BE or UTF-32-BE.
        errors: the treatment of invalid bytes: "replace", "ignore" or "strict".
        replacement_char: the code of the replacement.
        replace_control_characters: whether to replace characters below a space.
    """
    how = (errors, replacement_char, replace_control_characters)
    return _codes(Coding("unicode_decode", input_encoding, *how), input)


def unicode_decode_with_offsets(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> tuple[Numbers, Numbers]:
    """Return the results of `unicode_decode` and the byte offsets of the characters;
    int64."""
    how = (errors, replacement_char, replace_control_characters)
    coding = Coding("unicode_decode_with_offsets", input_encoding, *how)
    return _codes(coding, input), _offsets(coding, input)


def unicode_encode(
    input: TensorLike,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> StringTensor:
    """Encode character codes as strings.

    Args:
        input: integers; the last axis, or a ragged row, becomes a string.
        output_encoding: UTF-8, UTF-16-BE or UTF-32-BE.
        errors: the treatment of invalid codes: "replace", "ignore" or "strict".
        replacement_char: the code of the replacement.
    """
    how = (errors, replacement_char, False)
    coding = Coding("unicode_encode", output_encoding, *how).validate()
    if isinstance(input, RaggedTensor):
        rows, shape = input.to_list(), (len(input),)
    else:
        array = np.asarray(convert(input))
        if array.dtype.kind not in "iu" or not array.ndim:
            raise DTypeError(
                "unicode_encode: expected a tensor of integers with an axis or more; "
                f"received one of {array.dtype} and shape {array.shape}"
            )
        shape = array.shape[:-1]
        rows = array.reshape(-1, array.shape[-1]).tolist()
    return StringTensor(object_array([coding.encode(row) for row in rows], shape))


def unicode_transcode(
    input: TensorLike,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Strings:
    """Convert strings to another encoding; the arguments are as for
    `unicode_decode`."""
    how = (errors, replacement_char, replace_control_characters)
    source = Coding("unicode_transcode", input_encoding, *how).validate()
    target = Coding("unicode_transcode", output_encoding, *how).validate()

    def transcode(data: bytes) -> bytes:
        return target.encode([ord(c) for c, _ in source.characters(data)])

    return map_strings(transcode, input)


# --- n-grams --------------------------------------------------------------------------


def ngrams(
    data: TensorLike,
    ngram_width: Any,
    separator: str = " ",
    pad_values: Any = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Strings:
    """Join `ngram_width` adjacent strings.

    Args:
        data: strings; their last axis, or ragged rows.
        ngram_width: the number of strings, or several such numbers in order.
        separator: between the strings.
        pad_values: padding before and after the strings, or a pair of paddings.
        padding_width: the maximum padding; None: the width minus 1.
        preserve_short_sequences: whether to join all strings if they are too few for
            any width.
    """
    widths = ngram_width if isinstance(ngram_width, (list, tuple)) else [ngram_width]
    if not all(width >= 1 for width in widths):
        raise ArgumentError(f"ngrams: expected widths >= 1; received {ngram_width}")
    pair = pad_values if isinstance(pad_values, (list, tuple)) else (pad_values,) * 2
    before, after = (None if pad is None else to_text(pad, "ngrams") for pad in pair)
    between = separator.encode()

    def padded(row: list[bytes], width: int) -> list[bytes]:
        if before is None or after is None:
            return row
        count = width - 1 if padding_width is None else min(width - 1, padding_width)
        return [before.encode()] * count + row + [after.encode()] * count

    def grams(row: list[bytes]) -> Iterator[bytes]:
        for width in map(int, widths):
            padded_row = padded(row, width)
            for start in range(len(padded_row) - width + 1):
                yield between.join(padded_row[start : start + width])

    def grams_of_row(row: list[bytes]) -> list[bytes]:
        result = list(grams(row))
        if not result and row and preserve_short_sequences:
            return [between.join(row)]
        return result

    if isinstance(data, RaggedTensor):
        rows = [grams_of_row(row) for row in data.to_list()]
        flat = [gram for row in rows for gram in row]
        lengths = list(map(len, rows))
        return RaggedTensor.from_row_lengths(object_array(flat, (len(flat),)), lengths)
    array = to_bytes_array(data)
    if not array.ndim:
        raise ArgumentError("ngrams: expected strings with an axis or more")
    rows = [grams_of_row(row) for row in array.reshape(-1, array.shape[-1]).tolist()]
    count = len(rows[0]) if rows else 0
    flat = [gram for row in rows for gram in row]
    return StringTensor(object_array(flat, (*array.shape[:-1], count)))
