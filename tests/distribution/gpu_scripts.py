"""Scripts of jobs that train models on simulated GPUs."""

# Path of a variable -> its axes, by a name.
LAYOUTS = {
    # Pairs of layers, of which the second adds over the axis that is split.
    "tensor": {
        ".*up/kernel": (None, "model"),
        ".*up/bias": ("model",),
        ".*down/kernel": ("model", None),
        ".*(query|key|value)/kernel": (None, "model", None),
        ".*(query|key|value)/bias": ("model", None),
        ".*attention_output/kernel": ("model", None, None),
    },
    # Weights are split over the ranks of the batch axis: along the first axis, and
    # along an axis whose shards are not contiguous in the whole weight.
    "stored": {
        ".*up/kernel": ("batch", None),
        ".*up/bias": ("batch",),
        ".*down/kernel": (None, "batch"),
        ".*conv.*/kernel": (None, None, None, "batch"),
    },
}
# Weights that are gathered twice in each step.
LAYOUTS["large"] = {".*large./kernel": ("batch", None)}
LAYOUTS["both"] = {
    **LAYOUTS["tensor"],
    ".*up/kernel": ("batch", "model"),
    ".*down/kernel": ("model", "batch"),
}

MODELS = """
random = np.random.default_rng(0)
scale = options.get("scale", 1)  # of the features

def mlp():
    x = random.random((41, 6), "float32")
    model = tk.Sequential([
        layers.Dense(16, "relu"), layers.Dropout(0.2), layers.Dense(3, "softmax"),
    ])
    return model, x

def quads():  # with rows of four elements, which kernels can read at once
    x = random.random((41, 6), "float32")
    return tk.Sequential([layers.Dense(16, "relu"), layers.Dense(4, "softmax")]), x

def pair():
    x = random.random((41, 6), "float32")
    model = tk.Sequential([
        layers.Dense(16, "relu", name="up"), layers.Dropout(0.2),
        layers.Dense(8, name="down"), layers.Dense(3, "softmax"),
    ])
    return model, x

def wide():  # with weights that a sharded optimizer splits
    x = random.random((41, 32), "float32")
    return tk.Sequential([layers.Dense(64, "relu"), layers.Dense(3, "softmax")]), x

def table():  # of which each step reads and updates few rows
    x = random.integers(0, 2000, (41, 3)).astype("int32")
    model = tk.Sequential([
        layers.Embedding(2000, 16), layers.Flatten(), layers.Dense(3, "softmax"),
    ])
    return model, x

rows = table

def mixed():
    x = random.random((41, 8, 8, 3), "float32")
    tk.config.set_dtype_policy("mixed_bfloat16")
    model = tk.Sequential([
        layers.Conv2D(8, 3), layers.BatchNormalization(), layers.ReLU(),
        layers.Flatten(), layers.Dense(3),
        layers.Activation("softmax", dtype="float32"),
    ])
    return model, x

def deep():  # with weights of 64 KiB
    x = random.random((41, 128), "float32")
    hidden = [layers.Dense(128, "relu") for _ in range(5)]
    return tk.Sequential([*hidden, layers.Dense(3, "softmax")]), x

def large():  # with weights of 272 KiB
    x = random.random((41, 264), "float32")
    hidden = [layers.Dense(264, "relu", name=f"large{i}") for i in range(4)]
    return tk.Sequential([*hidden, layers.Dense(3, "softmax")]), x

def cnn():
    x = random.random((41, 8, 8, 3), "float32")
    model = tk.Sequential([
        layers.Conv2D(4 * scale, 3), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(), layers.Conv2D(8 * scale, 3, padding="same"),
        layers.BatchNormalization(), layers.GlobalAveragePooling2D(),
        layers.Dense(3, "softmax"),
    ])
    return model, x

def lstm():
    x = random.integers(0, 20, (41, 5)).astype("int32")
    model = tk.Sequential([
        layers.Embedding(20, 8), layers.LSTM(8), layers.Dense(3, "softmax"),
    ])
    return model, x

def gpt():
    x = random.integers(0, 30, (41, 6)).astype("int32")
    tokens = tk.Input((6,), dtype="int32")
    h = layers.Embedding(30, 16 * scale)(tokens)
    y = layers.LayerNormalization()(h)
    h = h + layers.MultiHeadAttention(4, 4 * scale)(y, y, use_causal_mask=True)
    y = layers.Dense(32 * scale, "gelu", name="up")(layers.LayerNormalization()(h))
    h = h + layers.Dense(16 * scale, name="down")(y)
    h = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(h))
    return tk.Model(tokens, layers.Dense(3, "softmax")(h)), x
"""

TRAINING = (
    f"LAYOUTS = {LAYOUTS}"
    + """
import warnings
from collections import Counter
from toolkit.models.training import loss_watch
from tests.distribution import gpus
options = json.loads(sys.argv[1])
name, on_gpu = options["model"], options.get("gpu", True)
if on_gpu:
    device = gpus.install(options["kernels"], options["nccl"], options.get("lag", ""))
    type(device).captures = options.get("captures", True)
if "mesh" in options:
    mesh = distribution.DeviceMesh(options["mesh"], ["batch", "model"])
    layouts = distribution.LayoutMap(mesh)
    for path, axes in LAYOUTS[options["layouts"]].items():
        layouts[path] = axes
    parts = {"batch": 4, "model": options.get("parts", 4)}
    parallel = distribution.ModelParallel(layout_map=layouts, shards=parts)
else:
    parallel = distribution.DataParallel(shards=4, **options.get("parallel", {}))
distribution.set_distribution(parallel)
assert parallel.device_mesh.devices.ravel()[0] == ("gpu:0" if on_gpu else "cpu:0")
"""
    + MODELS
    + """
tk.utils.set_random_seed(0)
model, x = globals()[name]()
y = random.integers(0, 3, len(x))
arguments = {"learning_rate": 0.01, "clipnorm": 1.0, **options.get("optimizer", {})}
optimizer = tk.optimizers.Adam(**arguments)
if name == "rows":
    optimizer = tk.optimizers.Adagrad(0.1)  # it updates only the rows of the batch
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
loss_watch._WATCH = 1e9  # so that no step waits for a loss
steps = []

class Steps(tk.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.first = len(device.launches)

    def on_train_batch_end(self, batch, logs=None):
        steps.append(Counter(device.launches[self.first :]))
        if options.get("shares") and rank == 0:
            # The tape keeps this buffer, so the next step writes to another one.
            with tk.GradientTape():
                model.trainable_variables[0].value

rows = options.get("batch", 8)
with warnings.catch_warnings(record=True) as issued:
    warnings.simplefilter("always")
    history = model.fit(
        x, y, batch_size=rows, epochs=options.get("epochs", 3), verbose=0,
        callbacks=[Steps()] if on_gpu else [],
    ).history
warned = [str(w.message) for w in issued if "through host memory" in str(w.message)]
predicted = model.predict(x, batch_size=rows, verbose=0)
evaluated = model.evaluate(x, y, batch_size=rows, verbose=0)
if on_gpu:
    arrays = [v.value._array for v in model.trainable_variables]
    assert all(type(array) is gpus.OpaqueArray for array in arrays)
results = [history, evaluated, digest(predicted), state_of(model)]
plan = model.inspect(x[:8], y[:8])
kernels = [
    [k.name, k.moments, [node.op.kind.value for node in k.nodes]] for k in plan.kernels
]
facts = dict(steps=steps, warned=warned, kernels=kernels)
tell([results, facts])
"""
)


BEGIN = """
from tests.distribution import gpus
device = gpus.install(*sys.argv[1:3])

def message(work):
    try:
        work()
    except tk.errors.ToolkitError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"

def fit(distributed, model_device="gpu:0", units=4):
    distribution.set_distribution(distributed)
    tk.utils.set_random_seed(0)
    model = tk.Sequential([layers.Dense(units, name="first"), layers.Dense(1)])
    with tk.device(model_device):
        model.compile("adam", "mse")
        model.fit(np.ones((8, 4), "float32"), np.ones((8, 1), "float32"), verbose=0)
    return model

def save_and_restore(model):
    # Hashes of the values, at first, loaded and restored; and of the state, likewise.
    checkpoint = distribution.Checkpoint(model)
    checkpoint.save("state")
    model.save_weights("model.weights.h5")
    values, state = digest(*model.variables), state_of(model)

    def clear(variables):
        for v in variables:
            v.assign(v.value * 0)

    clear(model.variables)
    model.load_weights("model.weights.h5")
    loaded = digest(*model.variables)
    clear([*model.variables, *model.optimizer.variables])
    checkpoint.restore("state")
    return values, loaded, digest(*model.variables), state, state_of(model)
"""
