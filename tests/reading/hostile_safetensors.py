"""Malicious or corrupt safetensors files: name -> bytes, message."""

import json

PAIR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def packed(header, values=bytes(8), length=None):
    """Return a file of a header, as an object or as text, and values."""
    text = header if isinstance(header, (str, bytes)) else json.dumps(header)
    text = text.encode() if isinstance(text, str) else text
    return (
        (len(text) if length is None else length).to_bytes(8, "little") + text + values
    )


def row(**changes):
    """Return a file of one array with changes in its header."""
    return packed({"x": {**PAIR, **changes}})


def two(first, second, size=16):
    """Return a file of two arrays of 8 bytes at these offsets."""
    rows = {"a": {**PAIR, "data_offsets": first}, "b": {**PAIR, "data_offsets": second}}
    return packed(rows, bytes(size))


HOSTILE = {
    "empty": (b"", "does not fit"),
    "cut off in its length": (bytes(7), "does not fit"),
    "no header": (bytes(8), "starts with"),
    "a header longer than the file": (packed({}, b"", 1000), "does not fit"),
    "a header of all bytes there are": (packed({}, b"", 2**64 - 1), "does not fit"),
    "a header of a terabyte": (packed({}, b"", 2**40), "does not fit"),
    "a header longer than any": (
        (9 << 20).to_bytes(8, "little") + b"{" + bytes(9 << 20),
        "exceeds the limit",
    ),
    "a header of lists": (packed('{"x":[' + "[]," * 2_000_000 + "[]]}"), "lists"),
    "a header of numbers": (
        packed('{"x":[' + "1," * 4_000_000 + "1]}"),
        "expected an object",
    ),
    "a pickle": (b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.".ljust(64), "does not fit"),
    "a list": (packed([PAIR]), "starts with"),
    "text": (packed('"x"'), "starts with"),
    "spaces first": (packed(" " + json.dumps({"x": PAIR})), "starts with"),
    "no JSON": (packed("{'x': 1}"), "expected JSON"),
    "JSON and more": (packed("{}{}", b""), "expected JSON"),
    "no end": (packed('{"x": {"dtype": "F32", ', b""), "expected JSON"),
    "no UTF-8": (packed(b'{"\xff": 1}'), "UTF-8"),
    "UTF-16": (packed("{}".encode("utf-16-le"), b""), "expected JSON"),
    "lists in lists": (packed('{"x": ' + "[" * 100_000), "expected JSON"),
    "objects in objects": (packed('{"x":' * 100_000), "expected JSON"),
    "lists in lists in an entry": (
        packed('{"x": ' + "[" * 900 + "]" * 900 + "}"),
        "expected an object",
    ),
    "a name twice": (
        packed(f'{{"x": {json.dumps(PAIR)}, "x": {json.dumps(PAIR)}}}'),
        "twice",
    ),
    "a key twice": (
        packed('{"x": {"dtype": "F32", "shape": [2], "shape": [1], '
               '"data_offsets": [0, 8]}}'),
        "twice",
    ),
    "half of a character": (packed('{"\\ud800": ' + json.dumps(PAIR) + "}"), "UTF-8"),
    "an entry that is a number": (packed({"x": 1}), "expected an object"),
    "an entry without a shape": (
        packed({"x": {"dtype": "F32", "data_offsets": [0, 8]}}),
        "expected an object",
    ),
    "an entry with more": (row(file="/etc/passwd"), "expected an object"),
    "metadata that are a list": (packed({"__metadata__": ["x"]}, b""), "metadata"),
    "metadata of objects": (packed({"__metadata__": {"x": {}}}, b""), "metadata"),
    "an unknown dtype": (row(dtype="O"), "expected a dtype"),
    "a dtype of half bytes": (row(dtype="F4"), "expected a dtype"),
    "a dtype of NumPy": (row(dtype="|O8"), "expected a dtype"),
    "a dtype that is a list": (row(dtype=["F32"]), "expected a dtype"),
    "a shape that is a number": (row(shape=2), "expected a shape"),
    "a shape below zero": (row(shape=[-2]), "expected a shape"),
    "two extents below zero": (row(shape=[-1, -2]), "expected a shape"),
    "an extent that is true": (row(shape=[True, 2]), "expected a shape"),
    "an extent that is a float": (row(shape=[2.0]), "expected a shape"),
    "an extent that is text": (row(shape=["2"]), "expected a shape"),
    "an extent that is infinite": (
        packed('{"x": {"dtype": "F32", "shape": [Infinity], "data_offsets": [0, 8]}}'),
        "expected a shape",
    ),
    "an extent beyond any": (row(shape=[2**64 + 2]), "expected a shape"),
    "more axes than NumPy has": (row(shape=[1] * 65 + [2]), "expected a shape"),
    "a product that overflows to 8": (row(shape=[2**62, 4, 2]), "takes"),
    "a product that overflows to 0": (
        row(shape=[2**32, 2**32], data_offsets=[0, 0]),
        "takes",
    ),
    "no values of an endless shape": (
        row(shape=[0, 2**62, 2**62], data_offsets=[0, 0]),
        "takes",
    ),
    "a terabyte in 8 bytes": (row(shape=[2**38]), "takes"),
    "a terabyte that is not there": (
        row(shape=[2**38], data_offsets=[0, 2**40]),
        "ends? at byte",
    ),
    "offsets below zero": (row(data_offsets=[-8, 0]), "expected two offsets"),
    "offsets the other way round": (row(data_offsets=[8, 0]), "takes"),
    "three offsets": (row(data_offsets=[0, 8, 16]), "expected two offsets"),
    "an offset that is a float": (row(data_offsets=[0.0, 8]), "expected two offsets"),
    "offsets that overflow": (row(data_offsets=[2**64 - 8, 2**64]), "two offsets"),
    "too few bytes for the shape": (row(shape=[3]), "takes"),
    "too many bytes for the shape": (row(shape=[1]), "takes"),
    "an overlap": (two([0, 8], [4, 12], 12), "values of another"),
    "one place for two": (two([0, 8], [0, 8], 8), "values of another"),
    "a hole": (two([0, 8], [16, 24], 24), "a hole"),
    "a hole in front": (row(data_offsets=[8, 16]), "a hole"),
    "values into the header": (row(data_offsets=[-4, 4]), "two offsets"),
    "values cut off": (packed({"x": PAIR}, bytes(7)), "ends? at byte"),
    "values behind the last": (packed({"x": PAIR}, bytes(9)), "ends? at byte"),
    "nothing in the middle of something": (
        packed({
            "a": PAIR,
            "b": {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]},
        }),
        "values of another",
    ),
    "a truth value that is none": (
        packed({"x": {"dtype": "BOOL", "shape": [8], "data_offsets": [0, 8]}},
               bytes(7) + b"\2"),
        "booleans",
    ),
}  # fmt: skip
