"""Translation of RE2 regular expressions to Python's `re`.

RE2 matches UTF-8 characters; invalid bytes match nothing. Its `$` matches only the end
of the text, and `\\d`, `\\w`, `\\s` and `\\b` are ASCII only. Sets contain all cases of
a character, because the cases differ from those of `re`.

The results differ in a few cases. RE2 matches `\\B` inside a character, and its `.`
matches encoded surrogates. Its groups, such as in `(a*)+`, keep the last match that is
not empty. RE2 also accepts `\\C`, scripts such as `\\p{Greek}`, and deeper groups.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import filterfalse, pairwise

from toolkit.errors import ArgumentError, UnsupportedError

Ranges = list[tuple[int, int]]  # of characters, inclusive

_BROKEN = (0xD800, 0xDFFF)  # the decoded form of bytes that are invalid UTF-8
_PERL = {"d": "09", "w": "09AZaz__", "s": "\t\n\f\r  "}
_POSIX = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\0\x7f",
    "blank": "\t\t  ",
    "cntrl": "\0\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZaz__",
    "xdigit": "09AFaf",
}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?!(?a:\b))"}
_KINDS = frozenset(
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps "
    "S Sc Sk Sm So Z Zl Zp Zs".split()
)
_CASED_LIMIT = 0x20000  # no character from here on has cases
# Characters with equal cases, whose full case folding has several characters.
_FOLDED = {"\u1fd3": "\u0390", "\u1fe3": "\u03b0", "\ufb06": "\ufb05"}
# Nested groups: Python's parser and this one are recursive.
_MAX_DEPTH = 50
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_NAMED = re.compile(r"\(\?P<\w+>")
_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_PROPERTY = re.compile(r"[pP](?:([A-Z])|\{(\^?)(\w+)\})")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}|([0-7]{2,3}|0)")


def translate(pattern: str, function: str) -> str:
    """Return the pattern of `re` for a pattern of RE2.

    Args:
        pattern: in RE2 syntax.
        function: the name of the calling function, for errors.

    Raises:
        ArgumentError: RE2 does not accept the pattern.
        UnsupportedError: `re` has no equivalent.
    """
    return _Translation(pattern, function).alternatives()


class _Translation:
    """A parser that reads a pattern from left to right."""

    def __init__(self, pattern: str, function: str) -> None:
        self.pattern = pattern
        self.function = function
        self.position = 0
        self.flags: frozenset[str] = frozenset()
        self.depth = 0  # nesting depth of groups

    def error(self, problem: str) -> ArgumentError:
        return ArgumentError(
            f"{self.function}: expected a regular expression that RE2 accepts; "
            f"received {self.pattern!r:.80}: {problem} at {self.position}"
        )

    def remaining(self) -> str:
        return self.pattern[self.position :]

    def consume(self, text: str) -> bool:
        """Consume `text` if it is next; return whether it is."""
        is_next = self.pattern.startswith(text, self.position)
        self.position += len(text) if is_next else 0
        return is_next

    def consume_match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Consume the next match of an expression, and return it."""
        match = expression.match(self.pattern, self.position)
        self.position = match.end() if match else self.position
        return match

    # --- structure of a pattern -------------------------------------------------------

    def alternatives(self) -> str:
        """Parse up to the end of the pattern, or of a group."""
        flags = self.flags
        alternatives: list[list[str]] = [[]]
        while self.position < len(self.pattern):
            if self.remaining()[0] == ")":
                if not self.depth:
                    raise self.error("an unmatched )")
                break
            if self.consume("|"):
                alternatives.append([])
            else:
                self.add_items(alternatives[-1])
        self.flags = flags
        return "|".join(map("".join, alternatives))

    def add_items(self, items: list[str]) -> None:
        """Parse an item, or a quotation of several, and its repetition."""
        if self.consume(r"\Q"):
            text, end, _ = self.remaining().partition(r"\E")
            self.position += len(text) + len(end)
            items += map(self.literal, text)
        else:
            items += filter(None, (self.atom(),))  # flags are no item
        count = self.count()
        if not count:
            return
        if not items:
            raise self.error("a repetition without an operand")
        lazy = self.consume("?") is not ("U" in self.flags)
        # In a group, `re` also repeats an assertion or another repetition.
        items[-1] = f"(?:{items[-1]}){count}" + "?" * lazy
        if self.count():
            raise self.error("a repetition of a repetition")

    def count(self) -> str:
        if self.remaining()[:1] in ("*", "+", "?") and self.remaining():
            self.position += 1
            return self.pattern[self.position - 1]
        match = self.consume_match(_COUNT)
        if not match:
            return ""
        low, high = int(match[1]), int(match[3] or match[1])
        if max(low, high) > 1000 or high < low:
            raise self.error(f"{match[0]}, which must increase and be at most 1000,")
        return match[0]

    def atom(self) -> str:
        if self.remaining()[0] == "(":
            return self.group()
        if self.consume("["):
            return self.bracket()
        if self.consume("."):
            return self.negated_set([] if "s" in self.flags else [(10, 10)])
        if self.consume("^"):
            return "(?m:^)" if "m" in self.flags else r"\A"
        if self.consume("$"):
            return "(?m:$)" if "m" in self.flags else r"\Z"
        if self.consume("\\"):
            return self.escape()
        if self.count():
            raise self.error("a repetition without an operand")
        self.position += 1
        return self.literal(self.pattern[self.position - 1])

    def group(self) -> str:
        flags, start = self.flags, "("
        named, marks = self.consume_match(_NAMED), None
        if named:
            start = named[0]
        elif (marks := self.consume_match(_FLAGS)) is not None:
            inner_flags = flags.union(marks[1]).difference(marks[2] or "")
            if marks[3] == ")":  # until the end of the enclosing group
                self.flags = inner_flags
                return ""
            self.flags, start = inner_flags, "(?:"
        elif self.consume("(?"):
            raise self.error("a group type that RE2 does not support")
        else:
            self.position += 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UnsupportedError(
                f"{self.function}: more than {_MAX_DEPTH} groups within groups are "
                f"not supported; received {self.pattern!r:.80}"
            )
        body = self.alternatives()
        self.depth -= 1
        self.flags = flags
        if not self.consume(")"):
            raise self.error("a missing )")
        return f"{start}{body})"

    def escape(self) -> str:
        r"""Parse an escape after a `\` outside of brackets."""
        letter = self.remaining()[:1]
        if letter in _ASSERTIONS and letter:
            self.position += 1
            return _ASSERTIONS[letter]
        if letter == "C":
            raise UnsupportedError(
                rf"{self.function}: \C, a byte, is not supported in {self.pattern!r}"
            )
        ranges = self.ranges()
        if ranges is None:
            return self.literal(self.character())
        return self.character_set(ranges)

    # --- characters -------------------------------------------------------------------

    def literal(self, character: str) -> str:
        ranges = self.add_cases([(ord(character), ord(character))])
        return re.escape(character) if len(ranges) == 1 else self.character_set(ranges)

    def add_cases(self, ranges: Ranges) -> Ranges:
        """Add the other cases of characters to a set, if the case is ignored."""
        if "i" not in self.flags:
            return ranges
        cases = {
            case
            for code, cases in _cases_by_code().items()
            if _contains(ranges, code)
            for case in cases
        }
        added = (case for case in sorted(cases) if not _contains(ranges, case))
        return [*ranges, *((case, case) for case in added)]

    def character_set(self, ranges: Ranges, start: str = "[") -> str:
        """Return a set of characters."""
        text = "".join(rf"\U{low:08x}-\U{high:08x}" for low, high in ranges)
        return f"{start}{text}]" if text else "(?!)"

    def negated_set(self, ranges: Ranges) -> str:
        """Return a negated set of characters."""
        return self.character_set([*ranges, _BROKEN], "[^")

    def bracket(self) -> str:
        """Parse a set of characters after its `[`."""
        negated, ranges, first = self.consume("^"), [], True
        while first or not self.consume("]"):
            if not self.remaining():
                raise self.error("a missing ]")
            first = False
            ranges += self.item()
        return self.negated_set(ranges) if negated else self.character_set(ranges)

    def item(self) -> Ranges:
        """Parse a class, a range or a character in brackets."""
        posix = self.consume_match(_CLASS)
        if posix:
            if posix[2] not in _POSIX:
                raise self.error(f"the unknown class {posix[0]}")
            ranges = self.add_cases(_pairs(_POSIX[posix[2]]))
            return _complement(ranges) if posix[1] else ranges
        if self.consume("\\"):
            class_ranges = self.ranges()
            if class_ranges is not None:
                return class_ranges
            low = self.character()
        else:
            low = self.one()
        high = low
        if self.remaining()[:1] == "-" and self.remaining()[1:2] not in ("]", ""):
            self.position += 1
            high = self.character() if self.consume("\\") else self.one()
        if high < low:
            raise self.error(f"the range {low}-{high}")
        return self.add_cases([(ord(low), ord(high))])

    def one(self) -> str:
        self.position += 1
        return self.pattern[self.position - 1]

    def ranges(self) -> Ranges | None:
        r"""Parse a class such as `\d` or `\p{L}` after its `\`, if there is one."""
        letter = self.remaining()[:1]
        if letter and letter.lower() in _PERL:
            self.position += 1
            ranges = self.add_cases(_pairs(_PERL[letter.lower()]))
            return _complement(ranges) if letter.isupper() else ranges
        match = self.consume_match(_PROPERTY)
        if not match:
            return None
        kind = match[1] or match[3]
        if kind not in _KINDS and kind != "Any":
            raise UnsupportedError(
                f"{self.function}: \\{match[0]} is not supported in "
                f"{self.pattern!r}: expected a general category of Unicode, one of "
                f"{', '.join(sorted(_KINDS))}"
            )
        ranges = self.add_cases(_of_kind(kind))
        is_negated = (match[0][0] == "P") is not bool(match[2])
        return _complement(ranges) if is_negated else ranges

    def character(self) -> str:
        r"""Parse the character after a `\`."""
        code = self.consume_match(_CODE)
        if code:
            text, base = (code[3], 8) if code[3] else (code[1] or code[2], 16)
            number = int(text, base)
            if number > sys.maxunicode:
                raise self.error(f"\\{code[0]}, which is no character,")
            return chr(number)
        letter = self.one() if self.remaining() else ""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if not letter or not letter.isascii() or letter.isalnum():
            raise self.error(f"the unknown escape \\{letter}")
        return letter


def _pairs(ends: Iterable[str]) -> Ranges:
    codes = list(map(ord, ends))
    return list(zip(codes[::2], codes[1::2], strict=True))


def _contains(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)


@lru_cache(maxsize=1)
def _cases_by_code() -> dict[int, list[int]]:
    """Return the cases of each character with several, by simple case folding."""
    cases_by_folded: dict[str, list[int]] = {}
    for code in filterfalse(_is_broken, range(_CASED_LIMIT)):
        letter = chr(code)
        forms = (letter.casefold(), letter.lower())
        folded = next((form for form in forms if len(form) == 1), letter)
        cases_by_folded.setdefault(_FOLDED.get(folded, folded), []).append(code)
    groups = [cases for cases in cases_by_folded.values() if len(cases) > 1]
    return {code: cases for cases in groups for code in cases}


def _complement(ranges: Ranges) -> Ranges:
    """Return the complement of ranges that do not overlap, without broken bytes."""
    ends = [(-1, -1), *sorted([*ranges, _BROKEN]), (sys.maxunicode + 1,) * 2]
    between = [(low[1] + 1, high[0] - 1) for low, high in pairwise(ends)]
    return [(low, high) for low, high in between if low <= high]


@lru_cache
def _of_kind(kind: str) -> Ranges:
    """Return the characters of a general category, or of a group of categories."""
    if kind == "Any":
        return _complement([])
    members = {name for name in _KINDS if name.startswith(kind)}
    ranges: Ranges = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) not in members or _is_broken(code):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges


def _is_broken(code: int) -> bool:
    return _BROKEN[0] <= code <= _BROKEN[1]
