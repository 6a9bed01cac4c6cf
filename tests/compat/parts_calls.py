"""Calls of newer names of `tf.strings`, each with TensorFlow 2.21's result below it."""

CALLS = {
    "characters": r"""
S.unicode_split("aé漢", "UTF-8")
    string [b'a', b'\xc3\xa9', b'\xe6\xbc\xa2']
S.unicode_split(["aé", "c", ""], "UTF-8")
    ragged string [[b'a', b'\xc3\xa9'], [b'c'], []]
S.unicode_split(b"a\xffb", "UTF-8")
    string [b'a', b'\xef\xbf\xbd', b'b']
S.unicode_split(b"a\xffb", "UTF-8", errors="ignore")
    string [b'a', b'b']
S.unicode_split(b"a\xffb", "UTF-8", errors="strict")
    refused
S.unicode_split(b"a\xffb", "UTF-8", replacement_char=63)
    string [b'a', b'?', b'b']
S.unicode_split_with_offsets("aéb", "UTF-8")
    (string [b'a', b'\xc3\xa9', b'b'], int64 [0, 1, 3])
S.unicode_split_with_offsets(["aé", "b"], "UTF-8")[1]
    ragged int64 [[0, 1], [0]]
S.unicode_decode("aé", "UTF-8")
    int32 [97, 233]
S.unicode_decode(["aé", "b"], "UTF-8")
    ragged int32 [[97, 233], [98]]
S.unicode_decode(b"a\xff", "UTF-8")
    int32 [97, 65533]
S.unicode_decode_with_offsets("aé", "UTF-8")
    (int32 [97, 233], int64 [0, 1])
S.unicode_decode(b"\x00a\x00b", "UTF-16-BE")
    int32 [97, 98]
S.unicode_encode([97, 233], "UTF-8")
    string b'a\xc3\xa9'
S.unicode_encode([[97, 233], [98, 99]], "UTF-8")
    string [b'a\xc3\xa9', b'bc']
S.unicode_encode(R([[97, 233], [98]]), "UTF-8")
    string [b'a\xc3\xa9', b'b']
S.unicode_encode([97], "UTF-16-BE")
    string b'\x00a'
S.unicode_encode([97, 0xD800], "UTF-8")
    string b'a\xef\xbf\xbd'
S.unicode_encode([97, 0xD800], "UTF-8", errors="ignore")
    string b'a'
S.unicode_encode([97, 0x110000], "UTF-8", errors="strict")
    refused
S.unicode_transcode(["aé"], "UTF-8", "UTF-16-BE")
    string [b'\x00a\x00\xe9']
S.unicode_transcode("a\x01b", "UTF-8", "UTF-8", replace_control_characters=True)
    string b'a\xef\xbf\xbdb'
S.unicode_transcode(b"a\xff", "UTF-8", "UTF-8")
    string b'a\xef\xbf\xbd'
S.unicode_transcode("a", "KLINGON", "UTF-8")
    refused
""",
    "hashes": r"""
S.to_hash_bucket_fast(["a", "b", "", "a longer string of more than 16 bytes"], 1000)
    int64 [939, 822, 263, 362]
S.to_hash_bucket_fast("hello", 7)
    int64 5
S.to_hash_bucket_strong(["a", "b"], 100, [1, 2])
    int64 [46, 84]
S.to_hash_bucket_strong("hello", 2**40, [3, -4])
    int64 719984755673
S.to_hash_bucket_fast(R([["a"], ["b", "c"]]), 100)
    ragged int64 [[39], [22, 72]]
S.to_hash_bucket_fast("a", 0)
    refused
""",
    "ngrams and joins": r"""
S.ngrams(["a", "b", "c"], 2)
    string [b'a b', b'b c']
S.ngrams(["a", "b", "c"], (1, 3), separator="|")
    string [b'a', b'b', b'c', b'a|b|c']
S.ngrams(["a"], 2)
    string []
S.ngrams(["a", "b"], 2, pad_values=("<", ">"))
    string [b'< a', b'a b', b'b >']
S.ngrams(["a", "b"], 3, pad_values="-")
    string [b'- - a', b'- a b', b'a b -', b'b - -']
S.ngrams(["a", "b"], 3, pad_values="-", padding_width=1)
    string [b'- a b', b'a b -']
S.ngrams(["a"], 2, preserve_short_sequences=True)
    string [b'a']
S.ngrams([["a", "b", "c"], ["d", "e", "f"]], 2)
    string [[b'a b', b'b c'], [b'd e', b'e f']]
S.ngrams(R([["a", "b", "c"], ["d"]]), 2)
    ragged string [[b'a b', b'b c'], []]
S.unsorted_segment_join(["a", "b", "c"], [1, 0, 1], 2)
    string [b'b', b'ac']
S.unsorted_segment_join(["a", "b", "c"], [1, 0, 1], 3, separator=",")
    string [b'b', b'a,c', b'']
""",
    "formats": r"""
S.format("x={}", C([1, 2]))
    string b'x=[1 2]'
S.format("x={}", C(1.5))
    string b'x=1.5'
S.format("{} and {}", [C(1), C("a")])
    string b'1 and "a"'
S.format("{}", C([[1.0, 2.5], [3.0, 4.0]]))
    string b'[[1 2.5]\n [3 4]]'
S.format("{}", tf.range(10))
    string b'[0 1 2 ... 7 8 9]'
S.format("{}", tf.range(10), summarize=-1)
    string b'[0 1 2 3 4 5 6 7 8 9]'
S.format("{}", C(["a", "b"]))
    string b'["a" "b"]'
S.format("%s!", C(1), placeholder="%s")
    string b'1!'
S.format("{} {}", C(1))
    refused
S.format("{}", C(True))
    string b'1'
S.format("none", ())
    string b'none'
""",
}
