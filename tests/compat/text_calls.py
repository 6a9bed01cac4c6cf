"""Calls of `tf.strings`, each with TensorFlow 2.21's result below it, see shown.py."""

CALLS = {
    "regex_replace": r"""
S.regex_replace("hi! you?", "[?!]", r" \0 ")
    string b'hi !  you ? '
S.regex_replace("¿qué?", r"[.?!,¿]", r" \0 ")
    string b' \xc2\xbf qu\xc3\xa9 ? '
S.regex_replace("está", "[á]", "a")
    string b'esta'
S.regex_replace("héllo", "h.l", "X")
    string b'Xlo'
S.regex_replace("a-b.c", "[[:punct:]]", "")
    string b'abc'
S.regex_replace("a1b22", "[[:digit:]]+", "#")
    string b'a#b#'
S.regex_replace("aé", "[[:^alpha:]]", "_")
    string b'a_'
S.regex_replace("aé", "[^[:alpha:]]", "_")
    string b'a_'
S.regex_replace("añ1", r"\p{L}", "x")
    string b'xx1'
S.regex_replace("aÑ!", r"\pL\PL*|\p{^Lu}", "_")
    string b'__'
S.regex_replace("a1-$ ", r"[\pP\p{Sc}\p{Z}]", "_")
    string b'a1___'
S.regex_replace("abc", "b*", "d")
    string b'dadcd'
S.regex_replace("aéc", "", "-")
    string b'-a-\xc3\xa9-c-'
S.regex_replace(["abcb", "d"], "(b)(c)?", r"<\2\1>")
    string [b'a<cb><b>', b'd']
S.regex_replace(["a1", "bc"], "[a-z]", "_", replace_global=False)
    string [b'_1', b'_c']
S.regex_replace("abc", "b", r"\\")
    string b'a\\c'
S.regex_replace("a\nb$\n", "$", "X")
    string b'a\nb$\nX'
S.regex_replace("a\nb", "(?m)^|$", "X")
    string b'XaX\nXbX'
S.regex_replace("a\nb\n", "a.b|b(?s:.)", "X")
    string b'a\nX'
S.regex_replace("aBc ABc", "a(?i)b|C", "X")
    string b'XX ABX'
S.regex_replace("aKbk", "(?i)[^k]", "_")
    string b'_K_k'
S.regex_replace("ÉaB", "(?i)é|(?-i)b|B", "X")
    string b'XaX'
S.regex_replace("aab", "(?U)a+|b*?", "x")
    string b'xxx'
S.regex_replace("a{,2}aa", "a{,2}|a{2}", "X")
    string b'XX'
S.regex_replace("é b", r"\w|\bb", "X")
    string b'\xc3\xa9 X'
S.regex_replace("a\vb\tc", r"\s", "-")
    string b'a\x0bb-c'
S.regex_replace("aé_", r"[\W_]", "-")
    string b'a--'
S.regex_replace("x-y", r"[a\-z]|[]y]", "_")
    string b'x__'
S.regex_replace("a-b&", "[--a&&]", "_")
    string b'__b_'
S.regex_replace("a.b+", r"\Q.b+\E", "x")
    string b'ax'
S.regex_replace("aKb\t", r"\x{61}|\x4B|\11|[\t]", "_")
    string b'__b_'
S.regex_replace("ab", "(?P<n>a)", r"<\1>")
    string b'<a>b'
S.regex_replace(b"a\xffb", ".|[^b]", "x")
    string b'x\xffx'
S.regex_replace("a", "(?=a)", "x")
    refused
S.regex_replace("a", "a*+", "x")
    refused
S.regex_replace("a", r"\y", "x")
    refused
S.regex_replace("a", "[[:no:]]", "x")
    refused
S.regex_replace("a", "a)", "x")
    refused
S.regex_replace("a", "[a", "x")
    refused
S.regex_replace("a", "a{1001}", "x")
    refused
S.regex_replace("a", "*a", "x")
    refused
S.regex_replace(tf.ragged.constant([["a", "b"], ["aa"]]), "a", "c")
    ragged string [[b'c', b'b'], [b'cc']]
""",
    "regex_full_match": r"""
S.regex_full_match("héy", "h.y")
    bool True
S.regex_full_match(["a", "ab", "b"], "a|ab")
    bool [True, True, False]
S.regex_full_match("a\n", "a$")
    bool False
""",
    "split": r"""
S.split("hello world!")
    string [b'hello', b'world!']
S.split(["a b", "c", ""])
    ragged string [[b'a', b'b'], [b'c'], []]
S.split("a,b,,c", sep=",")
    string [b'a', b'b', b'', b'c']
S.split(["a,b", "c"], ",", maxsplit=1)
    ragged string [[b'a', b'b'], [b'c']]
S.split("a b c", maxsplit=1)
    string [b'a', b'b c']
S.split("a/b/c.txt", "/")[-1]
    string b'c.txt'
S.split(["a b", "c"]).to_tensor(default_value="-")
    string [[b'a', b'b'], [b'c', b'-']]
[x for x in S.split(["a b", "c"])]
    list(string [b'a', b'b'], string [b'c'])
S.split("", sep=",")
    string [b'']
S.split("")
    string []
S.bytes_split("abc")
    string [b'a', b'b', b'c']
S.bytes_split(["ab", "c"])
    ragged string [[b'a', b'b'], [b'c']]
""",
    "parts": r"""
S.substr("abc", -2, 1)
    string b'b'
S.substr("abc", 0, -1)
    string b'abc'
S.substr("abc", -2, -5)
    string b'bc'
S.substr("abc", 3, 1)
    string b''
S.substr("abc", 4, 1)
    refused
S.substr("abc", -4, 1)
    refused
S.substr(["abc", "def"], [0, 1], [1, 2])
    string [b'a', b'ef']
S.substr("abc", [0, 1], 1)
    refused
S.substr("héllo", -4, 2, unit="UTF8_CHAR")
    string b'\xc3\xa9l'
S.length(["héllo", ""], unit="UTF8_CHAR")
    int32 [5, 0]
S.length(tf.ragged.constant([["aa"], ["b", "ccc"]]))
    ragged int32 [[2], [1, 3]]
S.upper(tf.ragged.constant([["aa"], ["b"]]))
    ragged string [[b'AA'], [b'B']]
S.reduce_join(tf.ragged.constant([["aa"], ["b", "c"]]), axis=-1, separator=" ")
    string [b'aa', b'b c']
""",
    "numbers": r"""
S.to_number("9007199254740993", tf.int64)
    int64 9007199254740993
S.to_number("3.7", tf.int32)
    refused
S.to_number("1e3", tf.float64)
    float64 1000.0
S.to_number([" 1 ", "-inf", "0x1F"])
    float32 [1.0, -inf, 31.0]
S.to_number(" +12 ", tf.int32)
    int32 12
S.to_number("3000000000", tf.int32)
    refused
S.to_number("3000000000", tf.uint32)
    uint32 3000000000
S.to_number("1_0")
    refused
S.to_number("5", tf.uint8)
    refused
S.to_number("x")
    refused
S.to_number(S.split(["1 2", "3"]))
    ragged float32 [[1.0, 2.0], [3.0]]
S.as_string(tf.complex(1.0, -2.5))
    string b'(1.000000,-2.500000)'
S.as_string(tf.complex(1.0, -2.5), precision=1)
    string b'(1.0,-2.5)'
S.as_string([1.5, float("nan"), float("inf"), -float("inf")])
    string [b'1.500000', b'nan', b'inf', b'-inf']
S.as_string([1.5, 1e10, 1e-10], shortest=True)
    string [b'1.5', b'1e+10', b'1e-10']
S.as_string([1.5, 1e10], scientific=True, precision=2)
    string [b'1.50e+00', b'1.00e+10']
S.as_string([1, 22], width=4)
    string [b'   1', b'  22']
S.as_string([-1, 22], width=4, fill="0")
    string [b'-001', b'0022']
S.as_string([1.5], width=9, fill="-")
    string [b'1.500000 ']
S.as_string([1], fill="+")
    string [b'+1']
S.as_string([True, False], width=7)
    string [b'true', b'false']
S.as_string([1], precision=2)
    refused
S.as_string("a")
    string b'a'
""",
    "printing": r"""
str(tf.constant("a"))
    "tf.Tensor(b'a', shape=(), dtype=string)"
str(tf.constant(["a", "b"]))
    "tf.Tensor([b'a' b'b'], shape=(2,), dtype=string)"
repr(tf.constant(["a", "b"]))
    "<tf.Tensor: shape=(2,), dtype=string, numpy=array([b'a', b'b'], dtype=object)>"
""",
    "bytes": r"""
tf.io.decode_raw(tf.constant([b"\x01\x02", b"\x03\x04"]), tf.uint8)
    uint8 [[1, 2], [3, 4]]
tf.io.decode_raw(tf.constant([[b"\x01\x02"]]), tf.int16)
    int16 [[[513]]]
tf.io.decode_raw(b"\x01\x02\x03\x04", tf.uint16, little_endian=False)
    uint16 [258, 772]
tf.io.decode_raw([b"\x01", b"\x02\x03"], tf.uint8)
    refused
tf.io.decode_raw([b"\x01", b"\x02\x03\x04"], tf.uint8, fixed_length=2)
    uint8 [[1, 0], [2, 3]]
tf.io.decode_raw(b"\x01", tf.uint16, fixed_length=2)
    uint16 [1]
tf.io.decode_raw(b"\x01", tf.uint16)
    refused
tf.io.decode_raw(b"", tf.uint16)
    uint16 []
tf.io.decode_raw(b"\x01", tf.uint16, fixed_length=3)
    refused
tf.io.decode_raw(b"\x01", tf.uint8, fixed_length=0)
    refused
tf.io.decode_raw(b"\x01\x00", tf.bool)
    bool [True, False]
tf.io.encode_base64(["hello", "a"])
    string [b'aGVsbG8', b'YQ']
tf.io.decode_base64(["aGVsbG8", "YQ=="])
    string [b'hello', b'a']
tf.io.decode_base64("a")
    refused
tf.io.decode_base64("a+b/")
    refused
tf.io.encode_base64([["h"]],pad=True)
    string [[b'aA==']]
""",
}
