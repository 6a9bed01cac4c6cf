"""Tests of regular expressions: google-re2, and the translation to `re`."""

import pytest

import toolkit.compat.tensorflow as tf
from toolkit.compat.tensorflow import regular_expressions
from toolkit.compat.tensorflow.regular_expressions import (
    Re2Expression,
    TranslatedExpression,
    compile_pattern,
    import_re2,
    parse_rewrite,
)
from toolkit.errors import ArgumentError, UnsupportedError

needs_re2 = pytest.mark.skipif(import_re2() is None, reason="needs google-re2")

TEXTS = [
    *(b"", b"a", b"ab", b"aab", b"abcabc", b"a\nb\n", b"a b1_", b"-]^\\", b"{}{"),
    *map(str.encode, ("aéb", "Éa", "iIİı", "kKK", "sSſ", "αΑ", "ßẞ", "日本", "ǅǆ")),
    *map(str.encode, ("ΐ\u1fd3", "ﬅﬆ")),
    *(b"\xff", b"a\xffb", b"\xc3", b"\xe6\x97", b"\0a"),
]
PATTERNS = r"""
a  .  é  日  a|b  a|  |a  a*  a+?  a??  a{2}  a{1,}  a{0,2}?  {,2}  {  }  a-  ()  (a)|b
(a)(b)?  (a|b)*  (|a)*  (?:a|ab)(c|bcd)*  (?P<n>a)b  ((a)|b)+  (a(b)?)+  x*  \d  \w+
\s  \D  \W  \S  \b  \bb  a\B  ^  $  ^a  a$  ^$  \A  \z  \A|\z  ^*  $+  \b?a  \A{2}a
(?m)^  (?m)$  (?m)^b$  (?s).  (?s)a.b  a.b  (?U)a+  (?U)a+?  (?U:a*)b  (?i)(?-i:a)B
[a-c]+  [^a]  [^a-z]  []a]  [^]a]  [a-]  [\d_]  [^\W]  [\W_]  [[:alpha:]]
[[:^alpha:]]  [^[:punct:]]  [[:space:]a]  [\x00-\x7f]+  [\pL\d]+  \pL  \PL  \p{Lu}
\P{Lu}  \p{^Lu}  \p{Any}  \P{Any}  [^\p{Any}]  \x41  \x{e9}  \101  \n  \Qa.b\E
\Qab\E*  a\Q\E*  \Q{\E{1}  (?i)a  (?i)i  (?i)İ  (?i)ı  (?i)k  (?i)[^k]  (?i)s+
(?i)[a-z]+  (?i)[^a-z]  (?i)é  (?i)α  (?i)ß  (?i)ǆ  (?i)ΐ  (?i)ﬅ  (?i)\w  (?i)\W
(?i)[\W]  (?i)[^\W]  (?i)\p{Lu}  (?i)\P{Lu}  (?i)[[:lower:]]  (?i)[[:^lower:]]  a(?i)*
a*(?i)*  (?i)a(?-i)b  (?:(?i)a)b  a**  *a  |*  |{2}  (?i)*  (*)  a{2,1}  a{1001}  (  )
(a  [a  [b-a]  [[:x:]]  \  \q  \8  (?=a)  (?<a)  (?P<>a)  (?z)  \pX
""".split()


def results(expression):
    """Return the results of an expression for all texts, with all groups."""
    rewrite = [x for i in range(expression.groups + 1) for x in (b"<", i, b">")]
    return [
        (
            expression.is_full_match(text),
            expression.replace(text, rewrite, only_first=False),
            expression.replace(text, rewrite, only_first=True),
        )
        for text in TEXTS
    ]


def outcome(kind, pattern):
    """Return the results for a pattern, or the class of its error."""
    try:
        return results(kind(pattern, "f"))
    except (ArgumentError, UnsupportedError):
        return ArgumentError


@needs_re2
def test_translations_match_re2():
    mismatches = [
        pattern
        for pattern in PATTERNS
        if outcome(TranslatedExpression, pattern) != outcome(Re2Expression, pattern)
    ]
    assert mismatches == []


@needs_re2
def test_re2_takes_linear_time():
    expression = compile_pattern("(a+)+b", "f")
    assert isinstance(expression, Re2Expression)
    assert not expression.is_full_match(b"a" * 100_000)


@needs_re2
@pytest.mark.parametrize("pattern", [r"\p{Greek}", r"\C", "(" * 60 + ")" * 60])
def test_re2_accepts_more_patterns(pattern):
    assert results(Re2Expression(pattern, "f"))
    with pytest.raises(UnsupportedError, match="^f: .* not supported"):
        TranslatedExpression(pattern, "f")


@needs_re2
@pytest.mark.parametrize(
    ("pattern", "text", "of_re2", "of_translation"),
    [
        (r"\B", "aé".encode(), b"a\xc3--\xa9--", b"a\xc3\xa9--"),
        (".", b"\xed\xa0\x80", b"-\xed\xa0\x80-", b"\xed\xa0\x80"),
        ("(a*)+", b"a", b"-a-", b"--"),
    ],
    ids=["inside a character", "surrogate", "last empty repetition"],
)
def test_known_differences(pattern, text, of_re2, of_translation):
    """The documentation of the translation lists them."""
    for kind, expected in (
        (Re2Expression, of_re2),
        (TranslatedExpression, of_translation),
    ):
        expression = kind(pattern, "f")
        rewrite = [b"-", expression.groups, b"-"]
        assert expression.replace(text, rewrite, only_first=False) == expected


@needs_re2
def test_errors_of_re2_name_the_function_and_the_pattern():
    with pytest.raises(ArgumentError, match=r"^regex_replace: .* '\(\?=a\)': invalid"):
        Re2Expression("(?=a)", "regex_replace")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"\p{Greek}", r"\\p\{Greek\} is not supported"),
        (r"\C", "a byte, is not supported"),
        ("(?=a)", r"'\(\?=a\)': a group type that RE2 does not support at 2"),
        ("a**", "a repetition of a repetition"),
    ],
)
def test_translation_refuses_patterns(pattern, message):
    with pytest.raises((ArgumentError, UnsupportedError), match=f"^f: .*{message}"):
        TranslatedExpression(pattern, "f")


@pytest.mark.parametrize(
    ("rewrite", "message"),
    [
        (r"\2", r"rewrite: expected .* one of 1 groups; received '\\\\2'"),
        (r"\x", r"received '\\\\x'"),
    ],
)
def test_rewrites_refer_to_groups(rewrite, message):
    with pytest.raises(ArgumentError, match=f"^regex_replace: .*{message}"):
        tf.strings.regex_replace("a", "(a)", rewrite)
    assert parse_rewrite(r"\\-\1", 1, "f") == [b"\\", b"-", 1]


def test_patterns_are_translated_without_google_re2(monkeypatch):
    compile_pattern.cache_clear()
    monkeypatch.setattr(regular_expressions, "import_re2", lambda: None)
    assert isinstance(compile_pattern("a", "f"), TranslatedExpression)
    assert tf.strings.regex_replace("aé", "[[:^alpha:]]", "_").numpy() == b"a_"
    compile_pattern.cache_clear()
