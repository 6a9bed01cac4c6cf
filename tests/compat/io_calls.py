"""Calls of `tf.io`, each with TensorFlow 2.21's result below it, see shown.py."""

CALLS = {
    "tensors as bytes": r"""
I.serialize_tensor(C([1, 2]))
    string b'\x08\x03\x12\x04\x12\x02\x08\x02"\x08\x01\x00\x00\x00\x02'
I.serialize_tensor(C(2.5))
    string b'\x08\x01\x12\x00"\x04\x00\x00 @'
I.serialize_tensor(C([[True], [False]]))
    string b'\x08\n\x12\x08\x12\x02\x08\x02\x12\x02\x08\x01"\x02\x01'
I.serialize_tensor(C(["a", ""]))
    string b'\x08\x07\x12\x04\x12\x02\x08\x02B\x01aB'
I.serialize_tensor(C(1.5, tf.float64))
    string b'\x08\x02\x12\x00"\x08\x00\x00\x00\x00\x00\x00\xf8?'
I.serialize_tensor(tf.zeros([0, 3], tf.int64))
    string b'\x08\t\x12\x06\x12\x00\x12\x02\x08\x03'
I.parse_tensor(I.serialize_tensor(C([[1, 2], [3, 4]])), tf.int32)
    int32 [[1, 2], [3, 4]]
I.parse_tensor(I.serialize_tensor(C(2.5)), tf.float32)
    float32 2.5
I.parse_tensor(I.serialize_tensor(C([["a", "bc"]])), tf.string)
    string [[b'a', b'bc']]
I.parse_tensor(I.serialize_tensor(C("a")), tf.string)
    string b'a'
I.parse_tensor(I.serialize_tensor(tf.zeros([0, 3], tf.bfloat16)), tf.bfloat16)
    bfloat16 []
I.parse_tensor(I.serialize_tensor(C([1])), tf.float32)
    refused
I.parse_tensor(b"\xff\xff", tf.float32)
    refused
I.parse_tensor(I.serialize_tensor(C([1 + 2j], tf.complex64)), tf.complex64)
    complex64 [(1+2j)]
I.parse_tensor(I.serialize_tensor(C([1, 2], tf.uint8)), tf.uint8)
    uint8 [1, 2]
""",
    "decode_csv": r"""
I.decode_csv(["1,2.5,a", "3,4.5,b"], [[0], [0.0], [""]])
    list(int32 [1, 3], float32 [2.5, 4.5], string [b'a', b'b'])
I.decode_csv("1,2.5,a", [[0], [0.0], [""]])
    list(int32 1, float32 2.5, string b'a')
I.decode_csv(["1,,a"], [[0], [9.0], [""]])
    list(int32 [1], float32 [9.0], string [b'a'])
I.decode_csv([",2"], [C([], tf.int64), C([1.0])])
    refused
I.decode_csv(["1,2"], [[0], [0], [0]])
    refused
I.decode_csv(["x,2"], [[0], [0]])
    refused
I.decode_csv(["1;2"], [[0], [0]], field_delim=";")
    list(int32 [1], int32 [2])
I.decode_csv(['"a,b",2'], [["" ], [0]])
    list(string [b'a,b'], int32 [2])
I.decode_csv(['"a",2'], [["" ], [0]], use_quote_delim=False)
    list(string [b'"a"'], int32 [2])
I.decode_csv(["NA,2"], [[7], [0]], na_value="NA")
    list(int32 [7], int32 [2])
I.decode_csv(["1,2,3"], [[0], [0]], select_cols=[0, 2])
    list(int32 [1], int32 [3])
I.decode_csv([["1,2"], ["3,4"]], [[0], [0.0]])
    list(int32 [[1], [3]], float32 [[2.0], [4.0]])
I.decode_csv(['"a ""q"" b",2'], [["" ], [0]])
    list(string [b'a "q" b'], int32 [2])
I.decode_csv(["9007199254740993"], [C([0], tf.int64)])
    list(int64 [9007199254740993])
I.decode_csv(["1.5"], [C([0.0], tf.float64)])
    list(float64 [1.5])
I.decode_csv(["3000000000"], [[0]])
    refused
I.decode_csv([" 1, a"], [[0], [""]])
    list(int32 [1], string [b' a'])
I.decode_csv([""], [[5]])
    refused
""",
    "features": r"""
parsed(I.FixedLenSequenceFeature([2], tf.int64, allow_missing=True))
    {a: int64 [[1, 2], [3, 4]]}
parsed(I.FixedLenSequenceFeature([], tf.int64, allow_missing=True))
    {a: int64 [1, 2, 3, 4]}
parsed(I.FixedLenSequenceFeature([3], tf.int64, allow_missing=True))
    refused
parsed(I.FixedLenSequenceFeature([], tf.string, True), "bytes", [b"x", b"y"])
    {a: string [b'x', b'y']}
parsed(I.FixedLenSequenceFeature([], tf.float32, True), "float", [])
    {a: float32 []}
parsed(I.RaggedFeature(tf.int64))
    {a: int64 [1, 2, 3, 4]}
I.is_jpeg(b"\xff\xd8\xff\xe0")
    bool True
I.is_jpeg("abc")
    bool False
I.read_file("no such file")
    refused
tf.train.Int64List(value=[1.5])
    refused
batch([[1, 2], [], [3]], I.FixedLenSequenceFeature([], tf.int64, True))
    {a: int64 [[1, 2], [0, 0], [3, 0]]}
batch([[1, 2], [], [3]], I.FixedLenSequenceFeature([], tf.int64, True, -1))
    {a: int64 [[1, 2], [-1, -1], [3, -1]]}
batch([[1, 2], [], [3, 4, 5, 6]], I.FixedLenSequenceFeature([2], tf.int64, True))
    {a: int64 [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[3, 4], [5, 6]]]}
""",
}
