"""Calls with strings, each with TensorFlow 2.21's result below it, see shown.py."""

CALLS = {
    "places": r"""
tf.size(s)
    int32 3
tf.size(m, out_type=tf.int64)
    int64 4
tf.size("a")
    int32 1
tf.shape(s)
    int32 [3]
tf.shape(m)
    int32 [2, 2]
tf.shape("a")
    int32 []
tf.rank(m)
    int32 2
tf.gather(s, [2, 0])
    string [b'b', b'b']
tf.gather(m, 1, axis=1)
    string [b'', b'd']
tf.gather(m, [1], axis=-1)
    string [[b''], [b'd']]
tf.gather(["a", "b"], C([[1, 0]]))
    string [[b'b', b'a']]
tf.gather_nd(m, [[0, 1], [1, 1]])
    string [b'', b'd']
tf.boolean_mask(s, [True, False, True])
    string [b'b', b'b']
tf.slice(m, [0, 1], [2, 1])
    string [[b''], [b'd']]
tf.identity(s)
    string [b'b', b'a', b'b']
tf.reshape(m, [-1])
    string [b'a', b'', b'c', b'd']
tf.reshape(s, [3, 1])
    string [[b'b'], [b'a'], [b'b']]
tf.concat([s, ["z"]], 0)
    string [b'b', b'a', b'b', b'z']
tf.stack([s, s])
    string [[b'b', b'a', b'b'], [b'b', b'a', b'b']]
tf.unstack(s)
    list(string b'b', string b'a', string b'b')
tf.split(s, 3)
    list(string [b'b'], string [b'a'], string [b'b'])
tf.expand_dims(s, 0)
    string [[b'b', b'a', b'b']]
tf.squeeze([["a"]])
    string b'a'
tf.transpose(m)
    string [[b'a', b'c'], [b'', b'd']]
tf.reverse(s, [0])
    string [b'b', b'a', b'b']
tf.tile(s, [2])
    string [b'b', b'a', b'b', b'b', b'a', b'b']
tf.repeat(s, 2)
    string [b'b', b'b', b'a', b'a', b'b', b'b']
tf.where([True, False, True], s, "z")
    string [b'b', b'z', b'b']
tf.where(tf.equal(s, "b"), "yes", s)
    string [b'yes', b'a', b'yes']
tf.roll(s, 1, 0)
    string [b'b', b'b', b'a']
tf.broadcast_to("a", [2])
    string [b'a', b'a']
tf.pad(s, [[1, 0]])
    string [b'', b'b', b'a', b'b']
tf.pad(s, [[1, 0]], constant_values="-")
    string [b'-', b'b', b'a', b'b']
tf.convert_to_tensor(["a"])
    string [b'a']
tf.dynamic_partition(s, [0, 1, 0], 2)
    list(string [b'b', b'b'], string [b'a'])
tf.meshgrid(["a"], ["b", "c"])
    refused
s[0]
    string b'b'
s[1:]
    string [b'a', b'b']
m[:, 0]
    string [b'a', b'c']
m[..., tf.newaxis].shape
    TensorShape([2, 2, 1])
s[s == "b"]
    string [b'b', b'b']
""",
    "values": r"""
tf.unique(s)
    Unique(string [b'b', b'a'], int32 [0, 1, 0])
tf.unique_with_counts(s)
    UniqueWithCounts(string [b'b', b'a'], int32 [0, 1, 0], int32 [2, 1])
tf.fill([2], "a")
    string [b'a', b'a']
tf.fill([2, 1], C("a"))
    string [[b'a'], [b'a']]
tf.zeros_like(s)
    string [b'', b'', b'']
tf.ones_like(s)
    refused
tf.zeros([2], tf.string)
    string [b'', b'']
tf.strings.regex_replace("a", r"\x{ffffffff}", "b")
    refused
tf.ones([2], tf.string)
    refused
tf.equal(s, "b")
    bool [True, False, True]
tf.equal("a", "a")
    bool True
tf.equal(s, m)
    refused
tf.not_equal(s, ["b", "b", "b"])
    bool [False, True, False]
s == "b"
    bool [True, False, True]
s != "b"
    bool [False, True, False]
tf.equal(s, C(["b", "x", "b"]))
    bool [True, False, True]
tf.reduce_all(s == s)
    bool True
tf.math.count_nonzero(m)
    int64 3
tf.math.count_nonzero(m, axis=1)
    int64 [1, 2]
tf.strings.join([s, s])
    string [b'bb', b'aa', b'bb']
s + "x"
    string [b'bx', b'ax', b'bx']
"x" + s
    string [b'xb', b'xa', b'xb']
tf.add(s, "x")
    string [b'bx', b'ax', b'bx']
tf.math.add_n([s, s])
    refused
tf.cast(s, tf.float32)
    refused
tf.reduce_sum(s)
    refused
tf.sort(s)
    refused
tf.less("a", "b")
    refused
tf.argmax(s)
    refused
tf.maximum(s, s)
    refused
tf.square(s)
    refused
tf.one_hot(s, 2)
    refused
tf.constant(["a"], dtype=tf.string)
    string [b'a']
tf.constant("a", shape=[2])
    string [b'a', b'a']
tf.constant(["a", "b"], shape=[2, 1])
    string [[b'a'], [b'b']]
tf.constant(["a", "b"], shape=[3])
    refused
tf.unique(x=s)
    Unique(string [b'b', b'a'], int32 [0, 1, 0])
tf.zeros_like(s, dtype=tf.int32)
    int32 [0, 0, 0]
tf.pad(s, [[1, 1]], "REFLECT")
    string [b'a', b'b', b'a', b'b', b'a']
tf.constant(["a"], dtype=tf.int32)
    refused
tf.constant(1, dtype=tf.string)
    refused
tf.ensure_shape(s, [3])
    string [b'b', b'a', b'b']
tf.function(lambda x: x + "!")(s)
    string [b'b!', b'a!', b'b!']
tf.function(lambda x: tf.strings.length(x))(s)
    int32 [1, 1, 1]
tf.function(lambda x: tf.size(x))(s)
    int32 3
tf.stop_gradient(s)
    string [b'b', b'a', b'b']
tf.nest.map_structure(tf.strings.upper, {"a": s})
    {a: string [b'B', b'A', b'B']}
tf.math.reduce_any(s == "a")
    bool True
tf.cond(C(True), lambda: C("a"), lambda: C("b"))
    string b'a'
""",
    "functions of Python": r"""
tf.py_function(lambda x: x + "!", [s], tf.string)
    string [b'b!', b'a!', b'b!']
tf.py_function(lambda x: len(x.numpy()), ["abc"], tf.int32)
    int32 3
tf.py_function(lambda n, x, k: [n + k, x + "!"], [1, "a", 2], [tf.int32, tf.string])
    list(int32 3, string b'a!')
tf.py_function(lambda n: str(n.numpy()), [1], tf.string)
    string b'1'
tf.numpy_function(lambda x: x + b"!", [C("a")], tf.string)
    string b'a!'
tf.numpy_function(lambda x, n: [x[0], n + 1], [s, 2], (tf.string, tf.int64))
    list(string b'b', int64 3)
W.map(lambda x: tf.py_function(lambda p: p + "!", [x], tf.string))
    data(string b'b!', string b'a!', string b'b!')
W.map(lambda x: tf.numpy_function(len, [x], tf.int64))
    data(int64 1, int64 1, int64 1)
""",
}
