"""Data parallel training on GPUs: a device in host memory and a stand-in for NCCL."""

import json

import numpy as np
import pytest

from tests.backends.cuda.host import GXX
from tests.comm.nccl_ranks import GCC, WHY_NOT, build
from tests.distribution.jobs import run

pytestmark = [
    pytest.mark.skipif(GCC is None, reason=WHY_NOT),
    pytest.mark.skipif(GXX is None, reason="g++ is not installed"),
]

MODELS = """
random = np.random.default_rng(0)

def mlp():
    x = random.random((41, 6), "float32")
    model = tk.Sequential([
        layers.Dense(16, "relu"), layers.Dropout(0.2), layers.Dense(3, "softmax"),
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

def cnn():
    x = random.random((41, 8, 8, 3), "float32")
    model = tk.Sequential([
        layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(), layers.Conv2D(8, 3, padding="same"),
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
    h = layers.Embedding(30, 16)(tokens)
    y = layers.LayerNormalization()(h)
    h = h + layers.MultiHeadAttention(2, 8)(y, y, use_causal_mask=True)
    y = layers.Dense(32, "gelu")(layers.LayerNormalization()(h))
    h = h + layers.Dense(16)(y)
    h = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(h))
    return tk.Model(tokens, layers.Dense(3, "softmax")(h)), x
"""

TRAINING = (
    """
import warnings
from toolkit.models.training import loss_watch
from tests.distribution import gpus
options = json.loads(sys.argv[1])
name, on_gpu = options["model"], options.get("gpu", True)
if on_gpu:
    device = gpus.install(options["kernels"], options["nccl"])
    type(device).captures = options.get("captures", True)
parallel = distribution.DataParallel(shards=4, **options.get("parallel", {}))
distribution.set_distribution(parallel)
assert parallel.device_mesh.devices[0] == ("gpu:0" if on_gpu else "cpu:0")
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
        steps.append(device.launches[self.first :])
        if options.get("shares") and rank == 0:
            # The tape keeps this buffer, so the next step writes to another one.
            with tk.GradientTape():
                model.trainable_variables[0].value

with warnings.catch_warnings(record=True) as issued:
    warnings.simplefilter("always")
    history = model.fit(
        x, y, batch_size=8, epochs=3, verbose=0, callbacks=[Steps()] if on_gpu else []
    ).history
warned = [str(w.message) for w in issued if "through host memory" in str(w.message)]
predicted = model.predict(x, batch_size=8, verbose=0)
evaluated = model.evaluate(x, y, batch_size=8, verbose=0)
if on_gpu:
    arrays = [v.value._array for v in model.trainable_variables]
    assert all(type(array) is gpus.OpaqueArray for array in arrays)
results = [history, evaluated, digest(predicted), state_of(model)]
tell([results, dict(steps=steps, warned=warned)])
"""
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folder of kernels, and the stand-in for NCCL."""
    return tmp_path_factory.mktemp("kernels"), build(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def train(tmp_path, folders, monkeypatch):
    """Return a function that trains a model on some ranks, and returns the reports."""
    kernels, nccl = map(str, folders)

    def start(model, ranks, **options):
        device = "gpu" if options.get("gpu", True) else "cpu"
        monkeypatch.setenv("TOOLKIT_DEVICE", device)
        options = {"model": model, "kernels": kernels, "nccl": nccl, **options}
        limits = {"timeout": 100, "seconds": 300}  # for a busy machine
        return run(tmp_path, ranks, TRAINING, json.dumps(options), **limits)

    return start


@pytest.mark.parametrize("model", ["mlp", "cnn", "lstm", "gpt"])
@pytest.mark.one_in(2)
def test_one_hash_for_any_number_of_gpus(train, model):
    """The last batch has one row, so three of four ranks have none."""
    ((expected, _),) = train(model, 1)
    for ranks in (2, 4):
        for results, facts in train(model, ranks):
            assert results == expected, ranks
            assert not facts["warned"]
    (((on_cpu, *_), _),) = train(model, 1, gpu=False)
    np.testing.assert_allclose(expected[0]["loss"], on_cpu["loss"], rtol=1e-3)


def test_steps_are_single_launches_without_waits(train):
    reports = train("mlp", 2)
    uncaptured = train("mlp", 2, captures=False)
    for (results, facts), (expected, _) in zip(reports, uncaptured, strict=True):
        assert results == expected
        # An epoch has five steps of one program, and one of another. The first run of
        # each is not captured. The next runs upload tables with new addresses.
        steps = facts["steps"]
        assert [step.count("replay") for step in steps] == [0, *[1] * 4, 0, *[1] * 12]
        for step in [*steps[3:5], *steps[6:11], *steps[12:]]:
            assert set(step) == {"replay", "copy"}, step


def test_ranks_capture_alike_after_a_buffer_moves_on_one_of_them(train):
    """The stand-in for NCCL refuses a collective that one rank alone captures."""
    expected = train("mlp", 2)
    for (results, facts), (unmoved, _) in zip(
        train("mlp", 2, shares=True), expected, strict=True
    ):
        assert results == unmoved
        assert [step.count("replay") for step in facts["steps"]].count(0) == 2


def test_without_nccl_sums_are_copied_through_the_host(train):
    expected = train("mlp", 2)
    for rank, ((results, facts), (by_nccl, _)) in enumerate(
        zip(train("mlp", 2, nccl=None), expected, strict=True)
    ):
        assert results == by_nccl
        assert len(facts["warned"]) == (rank == 0)


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": {"shard_optimizer": True}},
        {"optimizer": {"gradient_accumulation_steps": 3}},
    ],
)
@pytest.mark.one_in(2)
def test_options_have_one_hash(train, options):
    ((expected, _),) = train("wide", 1, **options)
    for results, facts in train("wide", 2, **options):
        assert results == expected
        assert set(facts["steps"][-2]) == {"replay", "copy"}


@pytest.mark.parametrize("model", ["mixed", "table", "rows"])
@pytest.mark.one_in(2)
def test_other_models_have_one_hash(train, model):
    ((expected, _),) = train(model, 1)
    for results, _ in train(model, 2):
        assert results == expected


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
"""

CUSTOM_LOOP = (
    BEGIN
    + """
from toolkit import ops
distribution.set_distribution(distribution.DataParallel(shards=4))
tk.utils.set_random_seed(0)
model = tk.Sequential([tk.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(1)])
optimizer = tk.optimizers.SGD(0.1, momentum=0.9)

@tk.function(distribute=True)
def step(x, y):
    with tk.GradientTape() as tape:
        out = model(x, training=True)
        loss = ops.mean(ops.square(out - y))
    weights = model.trainable_variables
    optimizer.apply(tape.gradient(loss, weights), weights)
    whole_numbers = ops.cast(10 * x, "int32")
    return (
        out, loss, ops.any(x > 0.99), ops.all(x > 0), ops.max(x), ops.argmax(x),
        ops.prod(x), ops.sum(whole_numbers), ops.max(whole_numbers),
        ops.std(x, axis=0), ops.cumsum(x, axis=0), ops.sort(x, axis=0),
    )

x = np.random.default_rng(0).random((9, 6), "float32")
results = [[np.asarray(value) for value in step(x, x[:, :1])] for _ in range(3)]
np.testing.assert_allclose(results[0][9], x.std(axis=0), rtol=1e-5)
np.testing.assert_array_equal(results[0][11], np.sort(x, axis=0))
tell([[digest(value) for row in results for value in row], digest(*model.variables)])
"""
)


REFUSALS = (
    BEGIN
    + """
mesh = distribution.DeviceMesh((2,), ["batch"], ["gpu:0", "gpu:1"])
stages = distribution.DeviceMesh((2,), ["stage"], ["gpu:0", "gpu:1"])
tell([
    message(lambda: fit(distribution.DataParallel(devices=["cpu:0", "cpu:1"]))),
    message(lambda: fit(distribution.DataParallel(mesh), "cpu:0")),
    message(lambda: fit(distribution.ModelParallel(
        layout_map=distribution.LayoutMap(mesh)))),
    message(lambda: fit(distribution.PipelineParallel(
        stages=["first", "dense"], device_mesh=stages))),
    message(lambda: (tk.config.set_autotune(True), fit(distribution.DataParallel()))),
    message(lambda: (tk.config.set_autotune(False), fit(distribution.DataParallel()))),
])
"""
)


@pytest.fixture
def start(tmp_path, folders, monkeypatch):
    """Return a function that runs a script on ranks with GPUs."""
    monkeypatch.setenv("TOOLKIT_DEVICE", "gpu")

    def run_script(script, ranks=2, **options):
        limits = {"timeout": 60, "seconds": 200}
        return run(tmp_path, ranks, script, *map(str, folders), **limits, **options)

    return run_script


def test_custom_loops_have_one_hash(start):
    (expected,) = start(CUSTOM_LOOP, 1)
    for ranks in (2, 4):
        assert all(report == expected for report in start(CUSTOM_LOOP, ranks))


def test_unsupported_jobs_are_refused_on_all_ranks(start):
    reports = start(REFUSALS)
    words = [
        "the step runs on gpu:0, so the mesh must have GPUs; received cpu:0, cpu:1",
        "the step runs on cpu:0, so the mesh must have CPUs; received gpu:0, gpu:1",
        "ModelParallel is supported only on the CPU; received the device gpu:0",
        "supported only on the CPU; received the device gpu:0",
        "autotuning is not supported in a job of several processes",
        "no error",
    ]
    assert reports[0] == reports[1]
    for text, expected in zip(reports[0], words, strict=True):
        assert expected in text


def test_ranks_on_one_gpu_are_refused(start, monkeypatch):
    script = (
        BEGIN
        + """
gpus.RankDevice.identity = "0000:1B:00.0"
tell(message(lambda: fit(distribution.DataParallel())))
"""
    )
    for text in start(script):
        assert "one GPU for each rank; received 0000:1B:00.0 on rank 0, 1" in text
    monkeypatch.setenv("TOOLKIT_SHARE_GPU", "on")
    assert start(script) == ["no error"] * 2


def test_elastic_jobs_are_refused(start):
    script = BEGIN + "tell(message(lambda: fit(distribution.DataParallel())))"
    for text in start(script, flags=["--elastic"]):
        assert "elastic jobs are supported only on the CPU" in text


def test_failed_rank_ends_the_job(start):
    script = (
        BEGIN
        + """
class Fails(tk.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if rank == 1 and batch == 2:
            raise RuntimeError("rank 1 fails in batch 2")

model = fit(distribution.DataParallel())
x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
model.fit(x, y, batch_size=8, verbose=0, callbacks=[Fails()])
"""
    )
    result = start(script, code=1)
    assert "rank 1 fails in batch 2" in result.errors
    assert "rank 1 has failed" in result.errors
    assert result.seconds < 60


def test_state_is_saved_and_restored(start):
    """The optimizer is sharded over the GPUs."""
    script = (
        BEGIN
        + """
model = fit(distribution.DataParallel(shard_optimizer=True), units=512)
slots = [v for v in model.optimizer.variables if v.placement is not None]
assert slots and all(type(v._tensor._array) is gpus.OpaqueArray for v in slots)
checkpoint = distribution.Checkpoint(model)
checkpoint.save("state")
model.save_weights("model.weights.h5")
before = digest(*model.variables), state_of(model)

def clear(variables):
    for v in variables:
        v.assign(v.value * 0)

clear(model.variables)
model.load_weights("model.weights.h5")
loaded = digest(*model.variables)
clear([*model.variables, *model.optimizer.variables])
checkpoint.restore("state")
tell([before[0], loaded, digest(*model.variables), before[1], state_of(model)])
"""
    )
    for values, loaded, restored, state, restored_state in start(script):
        assert loaded == restored == values
        assert restored_state == state
