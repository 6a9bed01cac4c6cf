"""Regular expressions in the syntax of RE2, as in TensorFlow.

The extra `regex` installs google-re2, which computes them in a time proportional to the
length of the string. Without it they are translated to Python's `re`, which uses
backtracking: a pattern such as `(a+)+b` can take very long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, AnyStr, Generic

from toolkit.compat.tensorflow.re2_translation import translate
from toolkit.core.strings import decode_bytes, encode_text
from toolkit.errors import ArgumentError


class Expression(Generic[AnyStr]):
    """A compiled pattern of RE2, for strings of UTF-8.

    Args:
        compiled: the pattern, for str or bytes.
    """

    def __init__(self, compiled: re.Pattern[AnyStr]) -> None:
        self._compiled: re.Pattern[AnyStr] = compiled
        self.groups: int = compiled.groups

    def is_full_match(self, data: bytes) -> bool:
        """Return whether the pattern matches the full string."""
        return self._compiled.fullmatch(self._decode(data)) is not None

    def replace(
        self, data: bytes, rewrite: Sequence[bytes | int], only_first: bool
    ) -> bytes:
        """Replace all matches, or the first one.

        Args:
            data: the string.
            rewrite: strings, and group numbers.
            only_first: whether to replace only the first match.
        """
        text = self._decode(data)
        fields = [x if isinstance(x, int) else self._decode(x) for x in rewrite]
        empty = text[:0]
        pieces: list[AnyStr] = []
        position, end = 0, -1
        while position <= len(text):
            match = self._compiled.search(text, position)
            if match is None:
                break
            pieces.append(text[position : match.start()])
            if match.start() == match.end() == end:
                # An empty match right after another match: skip a character.
                position = end + self._character_size(text, end)
                pieces.append(text[end:position])
                continue
            pieces += [(match[x] or empty) if isinstance(x, int) else x for x in fields]
            position = end = match.end()
            if only_first:
                break
        return self._encode(empty.join(pieces) + text[position:])

    def _decode(self, data: bytes) -> AnyStr:
        """Convert a string to the type that the pattern matches."""
        raise NotImplementedError

    def _encode(self, text: AnyStr) -> bytes:
        raise NotImplementedError

    def _character_size(self, text: AnyStr, position: int) -> int:
        """Return the size of the character at a position, in items of the text."""
        raise NotImplementedError


class TranslatedExpression(Expression[str]):
    """A pattern that is translated to `re`."""

    def __init__(self, pattern: str, function: str) -> None:
        try:
            super().__init__(re.compile(translate(pattern, function)))
        except re.error as error:
            raise _invalid_pattern(function, pattern, error) from error

    def _decode(self, data: bytes) -> str:
        return decode_bytes(data)

    def _encode(self, text: str) -> bytes:
        return encode_text(text)

    def _character_size(self, text: str, position: int) -> int:
        return 1


class Re2Expression(Expression[bytes]):
    """A pattern that google-re2 compiles."""

    def __init__(self, pattern: str, function: str) -> None:
        re2 = import_re2()
        options = re2.Options()
        options.log_errors = False
        try:
            super().__init__(re2.compile(encode_text(pattern), options))
        except re2.error as error:
            message = error.args[0].decode(errors="replace")
            raise _invalid_pattern(function, pattern, message) from error

    def _decode(self, data: bytes) -> bytes:
        return data

    def _encode(self, text: bytes) -> bytes:
        return text

    def _character_size(self, text: bytes, position: int) -> int:
        for size in range(1, 5):
            with suppress(UnicodeDecodeError):  # RE2 accepts surrogates
                text[position : position + size].decode("utf-8", "surrogatepass")
                return size
        return 1


@cache
def import_re2() -> Any:
    """Return the module of google-re2, or None if it is not installed."""
    try:
        import re2
    except ImportError:
        return None
    # Other packages have a module of this name.
    return re2 if hasattr(re2, "Options") else None


@lru_cache(maxsize=256)
def compile_pattern(
    pattern: str, function: str
) -> TranslatedExpression | Re2Expression:
    """Compile a pattern of RE2; errors contain the name of the function."""
    if import_re2() is None:
        return TranslatedExpression(pattern, function)
    return Re2Expression(pattern, function)


def parse_rewrite(rewrite: str, groups: int, function: str) -> list[bytes | int]:
    r"""Parse the rewrite of a match: strings, and group numbers for `\0` to `\9`."""
    pieces: list[bytes | int] = []
    for text in re.findall(r"\\.?|[^\\]+", rewrite, re.DOTALL):
        if text[0] != "\\":
            pieces.append(encode_text(text))
        elif text == "\\\\":
            pieces.append(b"\\")
        elif text[1:].isdecimal() and int(text[1:]) <= groups:
            pieces.append(int(text[1:]))
        else:
            raise ArgumentError(
                f"{function}: rewrite: expected \\\\ or a reference \\0 to \\9 to "
                f"one of {groups} groups; received {text!r} in {rewrite!r}"
            )
    return pieces


def _invalid_pattern(function: str, pattern: str, reason: object) -> ArgumentError:
    return ArgumentError(
        f"{function}: expected a regular expression that RE2 accepts; received "
        f"{pattern!r:.80}: {reason}"
    )
