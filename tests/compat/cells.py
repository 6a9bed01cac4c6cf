"""Programs in the style of TensorFlow 2 users, with the import of toolkit.

Each section runs in a separate process. All sections also run in one process, as in a
notebook.
"""

SPEED = """
import timeit

class Network(tf.keras.Model):
    def __init__(self, **kwargs):
        super(Network, self).__init__(**kwargs)
        self.flat = tf.keras.layers.Flatten(input_shape=(28, 28))
        self.hidden = tf.keras.layers.Dense(128, activation="relu")
        self.dropout = tf.keras.layers.Dropout(0.2)
        self.scores = tf.keras.layers.Dense(10)

    def call(self, x):
        x = self.flat(x)
        x = self.hidden(x)
        x = self.dropout(x)
        return self.scores(x)

pictures = tf.random.uniform([60, 28, 28])
eager, graph = Network(), None
graph = tf.function(eager)
assert timeit.timeit(lambda: eager(pictures), number=3) > 0
assert timeit.timeit(lambda: graph(pictures), number=3) > 0
assert graph(pictures).shape == (60, 10)
assert abs(graph(pictures) - eager(pictures)).numpy().max() < 1e-5
"""

SESSION = """
import numpy as np

tf.compat.v1.disable_eager_execution()
assert not tf.executing_eagerly()
in_a = tf.compat.v1.placeholder(dtype=tf.float32, shape=(2))
in_b = tf.compat.v1.placeholder(dtype=tf.float32, shape=(2))

def forward(x):
    with tf.compat.v1.variable_scope("matmul", reuse=tf.compat.v1.AUTO_REUSE):
        W = tf.compat.v1.get_variable(
            "W", initializer=tf.ones(shape=(2, 2)),
            regularizer=tf.keras.regularizers.L2(0.04),
        )
        b = tf.compat.v1.get_variable("b", initializer=tf.zeros(shape=(2)))
        return W * x + b

out_a = forward(in_a)
out_b = forward(in_b)
penalty = tf.compat.v1.losses.get_regularization_loss(scope="matmul")
with tf.compat.v1.Session() as sess:
    sess.run(tf.compat.v1.global_variables_initializer())
    a, b, lost = sess.run([out_a, out_b, penalty],
                          feed_dict={in_a: [1, 0], in_b: [0, 1]})
assert a.tolist() == [[1.0, 0.0]] * 2 and b.tolist() == [[0.0, 1.0]] * 2
assert a.dtype == np.float32 and abs(lost - 0.16) < 1e-6
tf.compat.v1.enable_eager_execution()
"""

REGULARIZED = """
tf.compat.v1.enable_eager_execution()
assert tf.executing_eagerly()
W = tf.Variable(tf.ones(shape=(2, 2)), name="W")
b = tf.Variable(tf.zeros(shape=(2)), name="b")
penalty = tf.keras.regularizers.l2(0.04)

@tf.function
def forward(x):
    return penalty(W) * x + b

out_b = forward([0, 1])
out_a = forward([1, 0])
assert abs(out_a.numpy() - [0.16, 0.0]).max() < 1e-6
assert abs(out_b.numpy() - [0.0, 0.16]).max() < 1e-6
assert out_a.dtype == tf.float32 and out_a.shape == (2,)
"""

GRADIENTS = """
x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    y = x**2
assert tape.gradient(y, x).numpy() == 6.0

w = tf.Variable(tf.random.normal((3, 2)), name="w")
b = tf.Variable(tf.zeros(2, dtype=tf.float32), name="b")
x = [[1.0, 2.0, 3.0]]
with tf.GradientTape() as tape:
    y = x @ w + b
    loss = tf.reduce_mean(y**2)
[dl_dw, dl_db] = tape.gradient(loss, [w, b])
assert str(w.shape) == str(dl_dw.shape) == "(3, 2)"
assert abs(dl_db.numpy() - y.numpy()[0]).max() < 1e-6
"""

LAYER = """
layer = tf.keras.layers.Dense(2, activation="relu")
x = tf.constant([[1.0, 2.0, 3.0]])
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(layer(x) ** 2)
grads = tape.gradient(loss, layer.trainable_variables)
lines = [
    f"{var.name}, shape: {g.shape}"
    for var, g in zip(layer.trainable_variables, grads)
]
assert lines[0].endswith("/kernel:0, shape: (3, 2)"), lines
assert lines[1].endswith("/bias:0, shape: (2,)"), lines
assert lines[0].startswith("dense"), lines
"""

PIPELINE = """
import sys
import time

class Artificial(tf.data.Dataset):
    def _generator(num_samples):
        time.sleep(0.003)
        for sample_idx in range(num_samples):
            time.sleep(0.0015)
            yield (sample_idx,)

    def __new__(cls, num_samples=3):
        return tf.data.Dataset.from_generator(
            cls._generator,
            output_types=tf.dtypes.int64,
            output_shapes=(1,),
            args=(num_samples,),
        )

def benchmark(dataset, num_epochs=2):
    start = time.perf_counter()
    taken = []
    for epoch in range(num_epochs):
        taken.append([int(sample[0]) for sample in dataset])
    tf.print("Execution time:", time.perf_counter() - start, output_stream=sys.stdout)
    assert taken[0] == taken[1]
    return taken[0]

AUTO = tf.data.experimental.AUTOTUNE
numbers = tf.data.Dataset.range(5)
assert benchmark(Artificial()) == [0, 1, 2]
assert benchmark(Artificial().prefetch(AUTO)) == [0, 1, 2]
turns = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3]
assert sorted(benchmark(numbers.interleave(Artificial))) == turns
assert benchmark(
    numbers.interleave(Artificial, num_parallel_calls=AUTO)
) == benchmark(numbers.interleave(Artificial))
for sample in Artificial():
    assert sample.dtype == tf.int64 and sample.shape == (1,)
"""

CLASSIFIER = """
tf.keras.backend.clear_session()
tf.config.optimizer.set_jit(False)
assert callable(tf.keras.datasets.cifar10.load_data)

import numpy as np
rng = np.random.default_rng(0)
x_train = rng.integers(0, 256, (32, 16, 16, 3)).astype("float32") / 256
y_train = tf.keras.utils.to_categorical(rng.integers(0, 10, (32, 1)), num_classes=10)
assert y_train.shape == (32, 10)

layers = tf.keras.layers
model = tf.keras.models.Sequential([
    layers.Conv2D(4, (3, 3), padding="same", input_shape=x_train.shape[1:]),
    layers.Activation("relu"),
    layers.Conv2D(4, (3, 3)),
    layers.Activation("relu"),
    layers.MaxPooling2D(pool_size=(2, 2)),
    layers.Dropout(0.25),
    layers.Flatten(),
    layers.Dense(16),
    layers.Activation("relu"),
    layers.Dropout(0.5),
    layers.Dense(10),
    layers.Activation("softmax"),
])
opt = tf.keras.optimizers.RMSprop(lr=0.0001, decay=1e-6)
model.compile(loss="categorical_crossentropy", optimizer=opt, metrics=["accuracy"])
history = model.fit(x_train, y_train, batch_size=16, epochs=2, shuffle=True,
                    validation_data=(x_train, y_train), verbose=0)
assert sorted(history.history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
assert abs(float(opt.learning_rate) - 0.0001 / (1 + 1e-6 * 4)) < 2e-11
"""

FUSED = """
@tf.function(jit_compile=True)
def model_fn(x, y, z):
    return tf.reduce_sum(x + y * z)

x = tf.ones((64, 64))
assert model_fn(x, x, x).numpy() == 2 * 64 * 64
"""

SECTIONS = {
    "speed": SPEED,
    "session": SESSION,
    "regularized": REGULARIZED,
    "gradients": GRADIENTS,
    "layer": LAYER,
    "pipeline": PIPELINE,
    "classifier": CLASSIFIER,
    "fused": FUSED,
}
