"""Calls of `tf.data`, each with TensorFlow 2.21's result below it, see shown.py."""

CALLS = {
    "numbers of float64": r"""
next(iter(D.from_tensor_slices(np.array([1700000123.125]))))
    float64 1700000000.0
doubles
    data(float64 1.5, float64 2.5)
doubles.map(lambda x: x * 2).batch(2)
    data(float64 [3.0, 5.0])
doubles.map(lambda x: {"a": x})
    data({a: float64 1.5}, {a: float64 2.5})
doubles.map(lambda x: (x, x.dtype.name == "float64"))
    data((float64 1.5, bool True), (float64 2.5, bool True))
doubles.reduce(np.float64(0), lambda a, b: a + b)
    float64 4.0
doubles.reduce(0.0, lambda a, b: a + tf.cast(b, tf.float32))
    float32 4.0
doubles.scan(np.float64(0), lambda s, x: (s + x, s * x))
    data(float64 0.0, float64 3.75)
doubles.filter(lambda x: x > 2)
    data(float64 2.5)
doubles.take_while(lambda x: x < 2)
    data(float64 1.5)
D.range(2).map(lambda x: np.float64(2))
    data(float64 2.0, float64 2.0)
D.range(2).map(lambda x: tf.numpy_function(lambda v: v * 2.5, [x], tf.float64))
    data(float64 0.0, float64 2.5)
D.from_tensors(np.float64(2))
    data(float64 2.0)
D.from_tensors({"a": np.array([1.0])})
    data({a: float64 [1.0]})
D.from_generator(lambda: iter([1.5]), output_signature=tf.TensorSpec([], tf.float64))
    data(float64 1.5)
D.zip((doubles, D.range(2)))
    data((float64 1.5, int64 0), (float64 2.5, int64 1))
""",
    "numbers of NumPy": r"""
tf.square(np.float64(2))
    float64 4.0
tf.identity(np.float64(2))
    float64 2.0
tf.stack([np.float64(1), np.float64(2)])
    float64 [1.0, 2.0]
tf.constant([np.float64(1)])
    float64 [1.0]
tf.constant(np.float64(1))
    float64 1.0
tf.convert_to_tensor(np.float64(1))
    float64 1.0
tf.convert_to_tensor([[np.float64(1)]])
    float64 [[1.0]]
tf.convert_to_tensor((np.float64(1), 2.0))
    float64 [1.0, 2.0]
tf.constant([1.0, np.float64(2)])
    float32 [1.0, 2.0]
tf.constant([np.float32(1), np.float64(2)])
    float32 [1.0, 2.0]
tf.constant([1, np.float64(2)])
    float32 [1.0, 2.0]
tf.fill([2], np.float64(2))
    float64 [2.0, 2.0]
tf.range(np.float64(3))
    float64 [0.0, 1.0, 2.0]
tf.reduce_sum([np.float64(1), np.float64(2)])
    float64 3.0
tf.add(np.float64(2), np.float64(3))
    float64 5.0
tf.add(C(2.0), np.float64(3))
    float32 5.0
C(2.0) * np.float64(3)
    float32 6.0
np.float64(3) * C(2.0)
    float32 6.0
C(2.0) * [np.float64(3)]
    float32 [6.0]
tf.maximum(np.float64(2), 1.0)
    float64 2.0
tf.cast(np.float64(2), tf.float32)
    float32 2.0
tf.Variable(1.0).assign(np.float64(2))
    float32 2.0
tf.where([True], np.float64(2), np.float64(3))
    float64 [2.0]
tf.reshape(np.float64(2), [1])
    float64 [2.0]
tf.concat([[np.float64(2)], [np.float64(3)]], 0)
    float64 [2.0, 3.0]
tf.math.exp(np.float64(0))
    float64 1.0
tf.clip_by_value(C([2.0]), np.float64(0), np.float64(1))
    float32 [1.0]
tf.pow(C(2.0), np.float64(2))
    float32 4.0
tf.constant([np.int64(1)])
    int32 [1]
tf.constant([np.int8(1), np.int8(1)])
    int32 [1, 1]
tf.constant([np.int64(1), 2])
    int32 [1, 2]
tf.square(np.int64(2))
    int64 4
tf.constant([np.bool_(True)])
    bool [True]
tf.constant([np.float16(1)])
    float16 [1.0]
tf.constant([np.float32(1)])
    float32 [1.0]
tf.constant([np.float32(1), 2])
    float32 [1.0, 2.0]
tf.constant([np.float64(1), 2])
    float64 [1.0, 2.0]
tf.constant([np.float64(1), np.float32(2)])
    float64 [1.0, 2.0]
tf.constant([np.int64(1), 2.5])
    float32 [1.0, 2.5]
tf.constant([np.int64(2**40)])
    int64 [1099511627776]
tf.constant([np.uint8(200)])
    int32 [200]
tf.constant([np.bool_(True), np.bool_(False)])
    bool [True, False]
tf.constant([np.complex64(1)])
    complex128 [(1+0j)]
tf.constant([np.complex128(1)])
    complex128 [(1+0j)]
tf.constant([[np.float64(1)],[2.0]])
    float64 [[1.0], [2.0]]
tf.constant([[1.0],[np.float64(2)]])
    float32 [[1.0], [2.0]]
tf.convert_to_tensor([np.int64(1)])
    int32 [1]
tf.stack([np.float64(1),tf.constant(2.)])
    float32 [1.0, 2.0]
tf.stack([tf.constant(2.),np.float64(1)])
    float32 [2.0, 1.0]
tf.add(np.float64(1), 2)
    float64 3.0
tf.add(2.0, np.float64(1))
    float32 3.0
tf.add(np.int64(2),1)
    int64 3
tf.add(np.int8(2),np.int8(1))
    int8 3
tf.maximum(1.0, np.float64(2))
    float32 2.0
tf.zeros_like(np.float64(2))
    float64 0.0
tf.ones_like([np.float64(2)])
    float64 [1.0]
tf.shape(np.float64(2))
    int32 []
tf.reduce_mean([np.float64(2)])
    float64 2.0
tf.reduce_mean(np.float64(2))
    float64 2.0
tf.linspace(np.float64(0), 1.0, 3)
    float64 [0.0, 0.5, 1.0]
tf.range(0, np.float64(2), 0.5)
    float64 [0.0, 0.5, 1.0, 1.5]
tf.range(np.int64(3))
    int64 [0, 1, 2]
tf.range(0, np.int64(3))
    int64 [0, 1, 2]
tf.one_hot(np.int64(1), 3)
    float32 [0.0, 1.0, 0.0]
tf.expand_dims(np.float64(2),0)
    float64 [2.0]
tf.tile([np.float64(2)],[2])
    float64 [2.0, 2.0]
tf.where(True, np.float64(2), 3.0)
    float64 2.0
tf.where(True, 3.0, np.float64(2))
    float32 3.0
tf.where([True], [np.float64(2)], [1.0])
    float64 [2.0]
tf.fill([1], np.int64(2))
    int64 [2]
tf.greater(np.float64(2), 1.5)
    bool True
tf.clip_by_value(np.float64(2), 0., 1.)
    float64 1.0
tf.math.log(np.float64(2))
    float64 0.69315
tf.nn.relu(np.float64(2))
    float64 2.0
tf.nn.softmax([np.float64(2), np.float64(2)])
    float64 [0.5, 0.5]
tf.sqrt(np.float64(2))
    float64 1.4142
tf.round(np.float64(2.5))
    float64 2.0
tf.abs(np.float64(-2))
    float64 2.0
tf.negative(np.float64(-2))
    float64 2.0
tf.sigmoid(np.float64(0))
    float64 0.5
tf.linalg.norm([np.float64(3),np.float64(4)])
    float64 5.0
tf.math.is_nan(np.float64(3))
    bool False
tf.repeat(np.float64(3),2)
    float64 [3.0, 3.0]
tf.pad([np.float64(3)],[[1,1]])
    float64 [0.0, 3.0, 0.0]
tf.Variable(np.float64(3))
    float64 3.0
tf.reduce_sum((np.float64(3),))
    float64 3.0
tf.random.normal([1],np.float64(0),np.float64(1)).dtype
    tf.float32
tf.random.uniform([1],0,np.float64(1)).dtype
    tf.float32
tf.image.adjust_brightness(tf.ones([1,1,3]), np.float64(.5)).dtype
    tf.float32
tf.nn.dropout(tf.ones([2]), np.float64(.5)).dtype
    tf.float32
""",
    "numbers of Python": r"""
D.from_tensors(5)
    data(int32 5)
D.from_tensors(2.5)
    data(float32 2.5)
D.from_tensors(5).element_spec
    spec int32 ()
D.from_tensors({"a": 1, "b": 2.0, "c": "x"})
    data({a: int32 1, b: float32 2.0, c: string b'x'})
D.from_tensors((1, "a"))
    data((int32 1, string b'a'))
D.from_tensors([1, 2])
    data(int32 [1, 2])
D.from_tensors(([1.0], True))
    data((float32 [1.0], bool True))
D.from_tensors(2**40)
    data(int64 1099511627776)
D.from_tensor_slices((1.0,))
    refused
D.range(2).map(lambda x: 5).element_spec
    spec int32 ()
D.range(2).map(lambda x: 2.5)
    data(float32 2.5, float32 2.5)
D.range(1).map(lambda x: (x, 5, "a", True))
    data((int64 0, int32 5, string b'a', bool True))
D.range(2).map(lambda x: {"a": 1})
    data({a: int32 1}, {a: int32 1})
D.range(3).reduce(0, lambda s, x: s + 1)
    int32 3
D.range(3).reduce((0, 1.0), lambda s, x: (s[0] + 1, s[1] * 2))
    (int32 3, float32 8.0)
D.range(3).scan(0, lambda s, x: (s + 1, s))
    data(int32 0, int32 1, int32 2)
""",
    "lists that functions return": r"""
D.range(2).map(lambda x: [x, x * 2])
    data((int64 0, int64 0), (int64 1, int64 2))
D.range(2).map(lambda x: [x, [x, x]])
    data((int64 0, int64 [0, 0]), (int64 1, int64 [1, 1]))
D.range(2).map(lambda x: ([x, x], x))
    data((int64 [0, 0], int64 0), (int64 [1, 1], int64 1))
D.range(2).map(lambda x: {"a": [x, x]})
    data({a: int64 [0, 0]}, {a: int64 [1, 1]})
D.range(2).map(lambda x: [[x, x]])
    data((int64 [0, 0]), (int64 [1, 1]))
D.range(2).map(lambda x: [x])
    data((int64 0), (int64 1))
D.range(2).map(lambda x: [1, 2])
    data((int32 1, int32 2), (int32 1, int32 2))
D.range(2).map(lambda x: [1, x])
    data((int32 1, int64 0), (int32 1, int64 1))
D.range(2).map(lambda x: ["a", "b"])
    data((string b'a', string b'b'), (string b'a', string b'b'))
D.range(2).map(lambda x: [x, x]).map(lambda a, b: a + b)
    data(int64 0, int64 2)
D.range(2).map(lambda x: np.array([1, 2]))
    data(int64 [1, 2], int64 [1, 2])
D.from_tensor_slices([[1, 2], [3, 4]]).map(lambda x: tf.unstack(x))
    data((int32 1, int32 2), (int32 3, int32 4))
D.from_tensor_slices([[1, 2], [3, 4]]).map(lambda x: tf.split(x, 2))
    data((int32 [1], int32 [2]), (int32 [3], int32 [4]))
D.range(1).map(lambda x: tf.py_function(lambda v: [v, v], [x], [tf.int64] * 2))
    data((int64 0, int64 0))
D.range(1).map(lambda x: tf.numpy_function(lambda v: [v, v + 1], [x], [tf.int64] * 2))
    data((int64 0, int64 1))
D.range(1).map(lambda x: (x, None))
    data((int64 0, None))
D.range(1).map(lambda x: (x, None)).element_spec
    (spec int64 (), NoneTensorSpec())
D.range(2).map(lambda x: (x, None)).batch(2)
    data((int64 [0, 1], None))
D.range(1).map(lambda x: {"a": None, "b": x})
    data({a: None, b: int64 0})
D.range(3).scan(0, lambda s, x: [s + 1, s])
    data(int32 0, int32 1, int32 2)
D.range(3).reduce((0, 1), lambda s, x: [s[0] + 1, s[1]])
    (int32 3, int32 1)
""",
    "strings": r"""
words.element_spec
    spec string ()
words.map(lambda s: s + "x").element_spec
    spec string ()
words.map(lambda s: s + "x").batch(2).element_spec
    spec string (None,)
words.batch(2).element_spec
    spec string (None,)
words.batch(2)
    data(string [b'a', b'b'])
list(words.as_numpy_iterator())
    list(b'a', b'b')
list(words.batch(2).as_numpy_iterator())
    list(array [b'a', b'b'])
list(words.map(lambda s: s + "x").as_numpy_iterator())
    list(b'ax', b'bx')
list(D.from_tensors({"a": "x"}).as_numpy_iterator())
    list({a: b'x'})
list(D.from_tensors("a").as_numpy_iterator())
    list(b'a')
list(D.range(2).as_numpy_iterator())
    list(int64 0, int64 1)
generated(lambda s: iter([s.decode() + "x"]), ("abc",), tf.string)
    data(string b'abcx')
generated(lambda s: iter([len(s)]), (["a", "b"],), tf.int32)
    data(int32 2)
generated(lambda n: iter([n]), (3,), tf.int32)
    data(int32 3)
D.from_generator(lambda: iter(["a"]), output_signature=tf.TensorSpec([], tf.string))
    data(string b'a')
D.from_tensors("a").element_spec
    spec string ()
D.from_tensor_slices({"a": ["x"]}).element_spec
    {a: spec string ()}
D.from_tensor_slices(np.array(["x", "yy"])).element_spec
    spec string ()
D.from_tensor_slices(["a", "b", "a"]).unique()
    data(string b'a', string b'b')
""",
    "shapes and sizes": r"""
rows.padded_batch(3, padded_shapes=[None])
    data(int64 [[1, 0, 0], [2, 2, 0], [3, 3, 3]])
rows.padded_batch(3, padded_shapes=[4])
    data(int64 [[1, 0, 0, 0], [2, 2, 0, 0], [3, 3, 3, 0]])
rows.padded_batch(3, [4], C(-1, tf.int64), drop_remainder=True)
    data(int64 [[1, -1, -1, -1], [2, 2, -1, -1], [3, 3, 3, -1]])
rows.padded_batch(2, padded_shapes=tf.TensorShape([None]))
    data(int64 [[1, 0], [2, 2]], int64 [[3, 3, 3]])
rows.padded_batch(2, padded_shapes=[None]).element_spec
    spec int64 (None, None)
rows.map(lambda x: (x, x[0])).padded_batch(3, padded_shapes=([None], []))
    data((int64 [[1, 0, 0], [2, 2, 0], [3, 3, 3]], int64 [1, 2, 3]))
rows.map(lambda x: {"a": x}).padded_batch(3, padded_shapes={"a": [None]})
    data({a: int64 [[1, 0, 0], [2, 2, 0], [3, 3, 3]]})
D.range(7).batch(4).rebatch([2, 1])
    data(int64 [0, 1], int64 [2], int64 [3, 4], int64 [5], int64 [6])
D.range(7).batch(4).rebatch(C(3, tf.int64))
    data(int64 [0, 1, 2], int64 [3, 4, 5], int64 [6])
D.from_generator(lambda: ([0], [1, 2]), output_types=tf.int32, output_shapes=[None])
    data(int32 [0], int32 [1, 2])
D.from_generator(lambda: ([0], [1]), tf.int32, tf.TensorShape([None]))
    data(int32 [0], int32 [1])
D.from_generator(lambda: iter([(1, [2])]), (tf.int32, tf.int64), ([], [None]))
    data((int32 1, int64 [2]))
D.from_generator(lambda: [(1, [2])], (tf.int32, tf.int64), (tf.TensorShape([]), [1]))
    data((int32 1, int64 [2]))
D.from_generator(lambda: iter([{"a": 1}]), {"a": tf.int32}, {"a": []})
    data({a: int32 1})
D.from_generator(lambda: iter([1]), tf.int32)
    data(int32 1)
D.from_tensor_slices(tf.ragged.constant([[1, 2], [3]]))
    data(int32 [1, 2], int32 [3])
D.from_tensor_slices(tf.ragged.constant([[1, 2], [3]])).batch(2)
    data(ragged int32 [[1, 2], [3]])
D.from_tensor_slices(tf.ragged.constant([["a", "b"], ["c"]])).batch(2)
    data(ragged string [[b'a', b'b'], [b'c']])
D.from_tensor_slices({"a": tf.ragged.constant([[1, 2]]), "b": [0]}).batch(1)
    data({a: ragged int32 [[1, 2]], b: int32 [0]})
D.from_tensor_slices(tf.ragged.constant([[1, 2], [3]])).map(lambda x: x * 2)
    data(int32 [2, 4], int32 [6])
D.from_tensors(tf.ragged.constant([[1, 2], [3]]))
    data(ragged int32 [[1, 2], [3]])
rows.bucket_by_sequence_length(lambda e: tf.shape(e)[0], [2, 4], [2, 2, 2])
    data(int64 [[2, 2, 0], [3, 3, 3]], int64 [[1]])
rows.shuffle(C(3, tf.int64), seed=C(1, tf.int64)).cardinality()
    int64 3
rows.batch(1).repeat(C(2, tf.int64)).skip(C(5, tf.int64))
    data(int64 [[3, 3, 3]])
D.range(5).window(3)
    data(data(int64 0, int64 1, int64 2), data(int64 3, int64 4))
D.range(5).window(2).flat_map(lambda w: w.batch(2))
    data(int64 [0, 1], int64 [2, 3], int64 [4])
D.range(3).window(2).map(lambda w: w.reduce(C(0, tf.int64), lambda a, b: a + b))
    data(int64 1, int64 2)
D.range(2).map(lambda x: D.range(x))
    data(data(), data(int64 0))
D.zip((words, words))
    data((string b'a', string b'a'), (string b'b', string b'b'))
D.zip({"a": words, "b": D.range(2)})
    data({a: string b'a', b: int64 0}, {a: string b'b', b: int64 1})
""",
    "choices": r"""
E.choose_from_datasets([one, three], D.from_tensor_slices(np.array([0, 0, 1, 1])))
    data(int64 0, int64 0, int64 1)
D.choose_from_datasets([one, three], D.from_tensor_slices(np.array([0, 0, 1, 1])))
    data(int64 0)
E.sample_from_datasets([three]).cardinality()
    int64 3
E.sample_from_datasets([three])
    data(int64 0, int64 1, int64 2)
D.sample_from_datasets([three]).cardinality()
    int64 3
E.get_single_element(D.from_tensors(3))
    int32 3
E.get_single_element(three)
    refused
three.apply(E.assert_cardinality(3))
    data(int64 0, int64 1, int64 2)
three.filter(lambda x: x > 0).apply(E.assert_cardinality(2)).cardinality()
    int64 2
list(three.apply(E.assert_cardinality(2)))
    refused
rows.apply(E.dense_to_ragged_batch(2))
    data(ragged int64 [[1], [2, 2]], ragged int64 [[3, 3, 3]])
rows.apply(E.dense_to_ragged_batch(2, drop_remainder=True))
    data(ragged int64 [[1], [2, 2]])
three.apply(E.dense_to_ragged_batch(2))
    data(int64 [0, 1], int64 [2])
three.apply(E.map_and_batch(lambda x: x * 2, 2))
    data(int64 [0, 2], int64 [4])
three.apply(E.map_and_batch(lambda x: x * 2, 2, drop_remainder=True))
    data(int64 [0, 2])
three.apply(E.shuffle_and_repeat(1, 2))
    data(int64 0, int64 1, int64 2, int64 0, int64 1, int64 2)
three.apply(E.enumerate_dataset(3))
    data((int64 3, int64 0), (int64 4, int64 1), (int64 5, int64 2))
three.apply(E.take_while(lambda x: x < 1))
    data(int64 0)
three.apply(E.unique())
    data(int64 0, int64 1, int64 2)
E.Counter(5, 2).take(3)
    data(int64 5, int64 7, int64 9)
E.RandomDataset(1).take(1).element_spec
    spec int64 ()
E.get_structure(three)
    spec int64 ()
E.cardinality(three)
    int64 3
type(three.fingerprint().dtype).__name__, three.fingerprint().dtype.name
    ('DType', 'uint64')
""",
}
