"""Tests that the TensorFlow names change nothing for a `toolkit` program.

The programs run in separate processes, because other tests import the TensorFlow names.
"""

import json
import subprocess
import sys

# The start of each process: all modules of the core, and their attributes.
SNAPSHOT = """
import importlib, json, sys
from pathlib import Path
import toolkit

SKIPPED = ("toolkit.compat", "toolkit.__main__", "toolkit.backends.cupy")

def modules():
    root = Path(toolkit.__path__[0])
    for path in sorted(root.rglob("*.py")):
        name = ".".join(("toolkit", *path.relative_to(root).with_suffix("").parts))
        name = name.removesuffix(".__init__")
        if not name.startswith(SKIPPED):
            yield importlib.import_module(name)

def snapshot(modules):
    seen = {}
    for module in modules:
        for name, value in vars(module).items():
            seen[module.__name__, name] = value
            if isinstance(value, type) and value.__module__.startswith("toolkit"):
                for key, member in vars(value).items():
                    seen[value.__module__, value.__qualname__, key] = member
    return seen

core = list(modules())
for module in core:
    for name in dir(module):
        try:
            getattr(module, name)  # what is found on first use
        except (AttributeError, ImportError):
            pass
toolkit.function(lambda x: x + 1)(toolkit.ops.ones(3))  # what generates code is there
assert "toolkit.compat" not in sys.modules
before = snapshot(core)

def differences():
    after = snapshot(core)
    counted = (int, float, str, bytes)  # counters and settings
    return sorted(
        ".".join(key)
        for key in before.keys() | after.keys()
        if before.get(key) is not after.get(key)
        and not isinstance(before.get(key), counted)
        and key != ("toolkit", "compat")
    )
"""

TENSORFLOW = """
import numpy as np
import toolkit.compat.tensorflow as tf
import toolkit.compat.tensorflow.v1 as tf1

for name in dir(tf):
    getattr(tf, name)
v = tf.Variable([1.0, 2.0], name="v")

@tf.function
def step(x):
    x = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x)
    return x @ tf.reshape(v, (2, 1))

y = step(tf.ones((3, 2)))
assert y.shape.as_list() == [3, 1] and v.name == "v:0", y
model = tf.keras.Sequential([tf.keras.layers.Dense(2, name="d")])
assert model(tf.ones((1, 2))).shape.as_list() == [1, 2]
graph = tf1.Graph()
with graph.as_default(), tf1.Session() as session:
    x = tf1.placeholder("float32", (None, 2), name="x")
    w = tf1.get_variable("w", initializer=tf.ones((2, 1)))
    loss = tf.reduce_mean(tf.square(x @ w))
    train = tf1.train.AdamOptimizer(0.1).minimize(loss)
    session.run(tf1.global_variables_initializer())
    for _ in range(3):
        session.run(train, {x: np.ones((4, 2), "float32")})
tf1.disable_eager_execution()
assert tf1.Session().run(tf.constant(1.0) + 2.0) == 3.0
tf1.enable_eager_execution()
"""

# The observations of a program as text, which must not depend on the lines above.
PROGRAM = """
import numpy as np
import toolkit

toolkit.utils.clear_session()
toolkit.utils.set_random_seed(3)
x = toolkit.ops.convert_to_tensor([[1.0, 2.0], [3.0, 4.0]])
v = toolkit.Variable([1.0, 2.0], name="v")
layer = toolkit.layers.Dense(2, name="dense")
y = layer(x)
seen = []

class Custom(toolkit.layers.Layer):
    def call(self, x):
        seen.append([repr(type(x)), repr(x.shape), repr(type(x.dtype))])
        return x + v

inputs = toolkit.Input((2,))
hidden = Custom()(toolkit.layers.Dense(2, activation="relu")(inputs))
model = toolkit.Model(inputs, toolkit.layers.Dense(1)(hidden))
model.compile(optimizer="adam", loss="mse")
data = np.random.default_rng(0).normal(size=(16, 2)).astype("float32")
model.fit(data, data[:, :1], epochs=2, verbose=0)
traced = toolkit.function(lambda x: seen.append(repr(x)) or x * v)
with toolkit.GradientTape() as tape:
    loss = toolkit.ops.sum(layer(x) ** 2)
facts = [repr(x), str(x), f"{x}", repr(x.shape), repr(type(x.dtype)), repr(x[0, 0])]
facts += [repr(type(x[0, 0].numpy())), repr(type(x + 1)), repr(type(x + v))]
facts += [repr(v), v.name, repr(type(v)), repr(type(v.shape)), repr(type(v.value))]
facts += [[w.name, w.path, repr(type(w)), repr(w)] for w in layer.weights]
facts += [sorted(set(dir(x))), sorted(set(dir(v))), sorted(set(dir(inputs)))]
facts += [repr(layer), repr(model), repr(y), repr(type(y)), repr(inputs), repr(hidden)]
facts += [repr(traced(x)), [repr(g) for g in tape.gradient(loss, layer.weights)]]
facts += [w.numpy().tobytes().hex() for w in model.weights]
facts += [w.tobytes().hex() for w in [model.predict(data, verbose=0)]]
facts += seen
try:
    toolkit.function(lambda x: 1 if x else 2)(x)
except Exception as error:
    facts.append(repr(error))
print(json.dumps(facts))
"""


def run(*sources):
    """Return the output of a program in a separate process."""
    command = [sys.executable, "-c", "".join(sources)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def test_core_attributes_are_unchanged():
    """Compare after the import, and after programs of both versions of TensorFlow."""
    code = "print(json.dumps(differences()))"
    assert json.loads(run(SNAPSHOT, TENSORFLOW, code)) == []


def test_programs_are_unchanged_by_the_shim():
    without_shim = json.loads(run("import json\n", PROGRAM))
    with_shim = json.loads(run("import json\n", TENSORFLOW, PROGRAM))
    assert with_shim == without_shim
