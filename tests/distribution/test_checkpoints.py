"""Test sharded checkpoints with virtual ranks."""

import json
import os
import threading

import numpy as np
import pytest

import toolkit as tk
from toolkit.comm import local
from toolkit.distribution import (
    Checkpoint,
    DataParallel,
    DeviceMesh,
    LayoutMap,
    ModelParallel,
    shard_files,
)
from toolkit.distribution.snapshots import WritePlan
from toolkit.errors import (
    ArgumentError,
    ModelFileError,
    NotBuiltError,
    UnwritableFileError,
)
from toolkit.files import staging


class Odd(tk.layers.Layer):
    def build(self, shape):
        for number, (extents, dtype) in enumerate(
            [((), "float32"), ((0, 3), "float32"), ((7, 5), "bfloat16")]
        ):
            self.add_weight(
                extents, "normal", dtype, trainable=False, name=f"w{number}"
            )

    def call(self, x):
        return x


def make(seed):
    tk.utils.set_random_seed(seed)
    layers = [tk.Input((40,)), Odd(), tk.layers.Dropout(0.5), tk.layers.Dense(50)]
    model = tk.Sequential(layers)
    model.compile("adam", "mse")
    x = np.random.default_rng(seed).normal(size=(8, 40)).astype("float32")
    model.fit(x, np.ones((8, 50), "float32"), verbose=0)
    return model


def bits(model):
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [np.asarray(v).tobytes() for v in variables]


def save(model, path, ranks=3, **options):
    def of(group):
        checkpoint = Checkpoint(model, group)
        checkpoint.save(path, **options)
        checkpoint.wait()

    local.run(ranks, of)


@pytest.mark.parametrize("wait", [True, False])
def test_any_number_of_ranks_reads_a_checkpoint(tmp_path, wait):
    model, path = make(1), tmp_path / "x"
    save(model, path, position={"epoch": 3}, wait=wait)
    assert sorted(os.listdir(tmp_path)) == ["x"]
    sizes = [(path / f"rank-0000{r}.bin").stat().st_size for r in range(3)]
    total = sum(map(len, bits(model)))
    assert max(sizes) <= total / 3 + 64 * len(bits(model))
    for ranks in (1, 2, 4):
        targets = [make(2) for _ in range(ranks)]
        reports = local.run(
            ranks,
            lambda g, m=targets: Checkpoint(m[g.rank], g).restore(path),
        )
        assert reports == [{"epoch": 3}] * ranks
        assert all(bits(other) == bits(model) for other in targets)


def flip(path):
    raw = bytearray((path / "rank-00001.bin").read_bytes())
    raw[3] ^= 1
    (path / "rank-00001.bin").write_bytes(raw)


def cut(path):
    os.truncate(path / "rank-00001.bin", 5)


def link(path):
    (path / "rank-00001.bin").rename(path / "y")
    (path / "rank-00001.bin").symlink_to("y")


def edit(**changes):
    def change(path):
        state = json.loads((path / "state.json").read_text())
        entry = state["variables"]["weights/0"]
        for key, value in changes.items():
            (entry if key in entry else entry["boxes"][0])[key] = value
        del state["sha256"]
        state["sha256"] = shard_files._digest_of_state(state)
        (path / "state.json").write_text(json.dumps(state))

    return change


DAMAGES = [
    *(flip, cut, link, edit(shape=[1]), edit(boxes=[]), edit(file="../x.bin")),
    *(edit(offset=-1), edit(length=1 << 60), edit(length="a"), edit(dtype="int8")),
    *(edit(file=3), edit(sha256=None), edit(boxes=3), edit(box=3), edit(box=[[0, 3]])),
    *(edit(box=[[0, 1 << 40], [0, 50]]), edit(box=[[-1, 1], [0, 50]])),
    *(edit(box=[[0.0, 1.0], [0, 50]]), edit(box=[[0, 1], [0, 50]])),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_corrupt_checkpoint_is_refused(tmp_path, damage):
    model, path = make(1), tmp_path / "x"
    save(model, path)
    # The file is valid but outside of the folder: its name must be refused.
    (tmp_path / "x.bin").write_bytes((path / "rank-00000.bin").read_bytes())
    damage(path)
    other = make(2)
    before = bits(other)
    with pytest.raises(ModelFileError, match="variable (weights|optimizer|others)/"):
        Checkpoint(other, local.single()).restore(path)
    assert bits(other) == before


def test_error_of_one_rank_fails_in_all(tmp_path, monkeypatch):
    model, path = make(1), tmp_path / "x"
    true = os.fsync
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        true(handle)

    monkeypatch.setattr(os, "fsync", full)

    def of(group):
        with pytest.raises(UnwritableFileError, match="process . *.*No space left"):
            Checkpoint(model, group).save(path)
        return True

    assert local.run(3, of) == [True] * 3
    assert not os.listdir(tmp_path)


def test_older_checkpoint_is_kept_after_a_failure(tmp_path):
    save(make(1), tmp_path / "x")
    with pytest.raises(UnwritableFileError, match="exists already"):
        save(make(2), tmp_path / "x", wait=False)
    model = make(3)
    Checkpoint(model, local.single()).restore(tmp_path / "x")
    assert bits(model) == bits(make(1))


def test_changed_manifest_is_refused(tmp_path):
    model, path = make(1), tmp_path / "x"
    save(model, path, position={"step": 1000})
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text.replace("1000", "1001"))
    with pytest.raises(ModelFileError, match=r"state\.json is corrupt"):
        Checkpoint(model, local.single()).restore(path)


def test_corrupt_file_of_one_rank_changes_no_rank(tmp_path, monkeypatch):
    save(make(1), tmp_path / "x")
    models = [make(2), make(2)]
    before = bits(models[0])
    true = shard_files.read_box

    def of(group):
        with pytest.raises(ModelFileError, match="unreadable here"):
            Checkpoint(models[group.rank], group).restore(tmp_path / "x")

    def read(*arguments):
        if threading.current_thread().name == "rank 1":
            raise OSError(5, "unreadable here")
        return true(*arguments)

    monkeypatch.setattr(shard_files, "read_box", read)
    local.run(2, of)
    assert [bits(model) for model in models] == [before] * 2


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("function_name", ["copy", "write", "list"])
@pytest.mark.parametrize("error", [ZeroDivisionError("odd"), MemoryError("odd")])
def test_any_error_of_one_rank_is_raised_in_all(
    tmp_path, monkeypatch, function_name, error, wait
):
    models = [make(1) for _ in range(3)]
    owner, name = {
        "copy": (WritePlan, "copy"),
        "write": (shard_files, "write_boxes"),
        "list": (shard_files, "publish"),
    }[function_name]
    true = getattr(owner, name)

    def fail(*arguments):
        is_it = {
            "copy": threading.current_thread().name == "rank 1",
            "write": arguments[1] == 1,
            "list": True,  # only the first rank writes it
        }
        if is_it[function_name]:
            raise error
        return true(*arguments)

    monkeypatch.setattr(owner, name, fail)

    def of(group):
        checkpoint = Checkpoint(models[group.rank], group)
        with pytest.raises(UnwritableFileError, match="process . *.*Error: odd"):
            checkpoint.save(tmp_path / "x", wait=wait)
            checkpoint.wait()
        return True

    assert local.run(3, of) == [True] * 3
    assert not os.listdir(tmp_path)


def test_interrupt_is_raised_only_in_its_rank(tmp_path, monkeypatch):
    models, true = [make(1), make(1)], WritePlan.copy

    def interrupted(*arguments):
        if threading.current_thread().name == "rank 0":
            raise KeyboardInterrupt
        true(*arguments)

    monkeypatch.setattr(WritePlan, "copy", interrupted)

    def of(group):
        kind = [KeyboardInterrupt, UnwritableFileError][group.rank]
        with pytest.raises(kind):
            Checkpoint(models[group.rank], group).save(tmp_path / "x")
        return True

    assert local.run(2, of) == [True] * 2
    assert not os.listdir(tmp_path)


def test_another_model_in_one_rank_is_refused(tmp_path):
    models = [make(1), tk.Sequential([tk.Input((4,)), tk.layers.Dense(2)])]

    def of(group):
        with pytest.raises(ArgumentError, match="has different variables"):
            Checkpoint(models[group.rank], group).save(tmp_path / "x")

    local.run(2, of)
    assert not os.listdir(tmp_path)


def test_two_saves_run_concurrently(tmp_path, monkeypatch):
    """Each save has the state at its call, and a third save waits for the first."""
    model = make(1)
    variable = model.trainable_variables[0]
    checkpoint, started, may_go = (
        Checkpoint(model, local.single()),
        [],
        threading.Event(),
    )
    true = shard_files.write_boxes

    def write(folder, rank, content, pieces):
        started.append(content.ctypes.data)
        assert may_go.wait(20)
        return true(folder, rank, content, pieces)

    monkeypatch.setattr(shard_files, "write_boxes", write)
    for number in range(2):
        variable.assign(np.full(variable.shape, number, "float32"))
        checkpoint.save(tmp_path / str(number), wait=False)
    assert not [name for name in os.listdir(tmp_path) if not name.startswith(".")]
    threading.Timer(0.2, may_go.set).start()
    for number in range(2, 6):
        variable.assign(np.full(variable.shape, number, "float32"))
        checkpoint.save(tmp_path / str(number), wait=False)
    assert (tmp_path / "0").is_dir() and (tmp_path / "3").is_dir()
    checkpoint.wait()
    assert len(set(started)) == 2  # the buffers of the first two saves are used again
    for number in range(6):
        checkpoint.restore(tmp_path / str(number))
        assert (variable.numpy() == number).all()


def test_background_failure_is_raised_by_a_later_save(tmp_path):
    (tmp_path / "0").mkdir()
    models = [make(1), make(1)]

    def of(group):
        checkpoint = Checkpoint(models[group.rank], group)
        checkpoint.save(tmp_path / "0", wait=False)
        checkpoint.save(tmp_path / "1", wait=False)
        with pytest.raises(UnwritableFileError, match="exists already"):
            checkpoint.save(tmp_path / "2", wait=False)
        checkpoint.save(tmp_path / "3", wait=False)
        checkpoint.wait()

    local.run(2, of)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "3"]


def test_foreign_staging_folders_are_kept(tmp_path):
    for name in (".x.0123abcd.tmp", ".x.4567abcd.tmp", ".y.0123abcd.tmp"):
        (tmp_path / name / "files").mkdir(parents=True)
    (tmp_path / ".x.0123abcd.tmp" / "owner").write_bytes(staging._LOCK_TEXT)
    (tmp_path / ".x.4567abcd.tmp" / "owner").write_text("somebody else's")
    save(make(1), tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == [".x.4567abcd.tmp", ".y.0123abcd.tmp", "x"]


def test_manifest_describes_the_job(tmp_path):
    mesh = DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
    checkpoint = Checkpoint(make(1), local.single())
    with ModelParallel(layout_map=LayoutMap(mesh)).scope():
        checkpoint.save(tmp_path / "x")
    state = json.loads((tmp_path / "x" / "state.json").read_text())
    assert (state["version"], state["processes"], state["shards"]) == (2, 1, 1)
    assert state["mesh"] == {
        "shape": [1, 1],
        "axis_names": ["batch", "model"],
        "batch_dim_name": "batch",
        "axis_shards": {},
    }
    checkpoint.restore(tmp_path / "x")  # no value that changes bits differs


def test_another_number_of_shards_is_reported(tmp_path):
    checkpoint = Checkpoint(make(1), local.single())
    with DataParallel(shards=4).scope():
        checkpoint.save(tmp_path / "x")
        checkpoint.restore(tmp_path / "x")
    with DataParallel(shards=2).scope():
        with pytest.warns(UserWarning, match="with shards=4; this one has shards=2"):
            checkpoint.restore(tmp_path / "x")
    with pytest.warns(UserWarning, match="with shards=4; this one has shards=1"):
        checkpoint.restore(tmp_path / "x")


def test_position_that_is_not_json_is_refused_by_all(tmp_path):
    models = [make(1), make(1)]

    def of(group):
        position = [0, {1, 2}][group.rank]
        with pytest.raises(UnwritableFileError, match="process 1: .*received .1, 2."):
            Checkpoint(models[group.rank], group).save(tmp_path / "x", position)

    local.run(2, of)
    assert not os.listdir(tmp_path)


def test_arguments_in_one_process(tmp_path):
    checkpoint = Checkpoint(make(1))
    with pytest.raises(ArgumentError, match="position of dicts.*received .1. of type"):
        checkpoint.save(tmp_path / "x", {"step": {1}})
    checkpoint.save(tmp_path / "x", {"step": np.int64(1), "loss": np.float32(0.5)})
    assert checkpoint.restore(tmp_path / "x") == {"step": 1, "loss": 0.5}
    with pytest.raises(UnwritableFileError, match=r"x': '\S*x' exists already"):
        checkpoint.save(tmp_path / "x")
    with pytest.raises(ModelFileError, match="no complete checkpoint.*has x"):
        checkpoint.restore(tmp_path / "y")


def test_model_without_weights_is_refused(tmp_path):
    checkpoint = Checkpoint(tk.Sequential([tk.layers.Dense(3)]))
    with pytest.raises(NotBuiltError, match="has no weights yet"):
        checkpoint.save(tmp_path / "x")
    Checkpoint(make(1)).save(tmp_path / "x")
    with pytest.raises((NotBuiltError, ModelFileError), match="has no weights yet"):
        checkpoint.restore(tmp_path / "x")


def test_latest_checkpoint_is_the_last_complete_one(tmp_path):
    checkpoint = Checkpoint(make(1))
    assert Checkpoint.latest(tmp_path / "none") is None
    for name in ("10", "9", "z"):
        checkpoint.save(tmp_path / name)
    assert Checkpoint.latest(tmp_path) == tmp_path / "z"
    (tmp_path / "z" / "rank-00000.bin").unlink()
    (tmp_path / ".11.tmp").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "file").touch()
    assert Checkpoint.latest(tmp_path) == tmp_path / "9"


def custom_loop(path, checkpointed_steps, optimizer):
    """Return the bits after four steps, with a restart after some of them."""
    model, x = None, np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    loss_of = tk.losses.MeanSquaredError()

    def start():
        tk.utils.set_random_seed(0)
        layers = [tk.Input((3,)), tk.layers.Dropout(0.5), tk.layers.Dense(2)]
        return tk.Sequential(layers), optimizer()

    def train(model, optimizer, steps):
        for _ in range(steps):
            with tk.GradientTape() as tape:
                noise = tk.random.normal((4, 3))  # of the global generator
                loss = loss_of(x[:, :2], model(x + noise, training=True))
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)

    model, state = start()
    if checkpointed_steps:
        train(model, state, checkpointed_steps)
        Checkpoint(model, optimizer=state).save(path, position=checkpointed_steps)
        model, state = start()
        checkpoint = Checkpoint(model, optimizer=state)
        assert checkpoint.restore(path) == checkpointed_steps
    train(model, state, 4 - checkpointed_steps)
    return [np.asarray(v).tobytes() for v in (*model.variables, *state.variables)]


@pytest.mark.parametrize(
    "optimizer",
    [
        tk.optimizers.Adam,
        lambda: tk.optimizers.LossScaleOptimizer(tk.optimizers.SGD(0.1, 0.9)),
    ],
)
def test_custom_loop_resumes_with_its_optimizer(tmp_path, optimizer):
    expected = custom_loop(None, 0, optimizer)
    assert custom_loop(tmp_path / "x", 2, optimizer) == expected


def test_optimizer_overrides_the_one_of_compile(tmp_path):
    model, optimizer = make(1), tk.optimizers.SGD(0.5)
    Checkpoint(model, optimizer=optimizer).save(tmp_path / "x")
    other = tk.optimizers.SGD(0.1)
    Checkpoint(model, optimizer=other).restore(tmp_path / "x")
    assert float(other.learning_rate) == 0.5


def test_state_without_an_optimizer_is_reported_once(tmp_path):
    model = tk.Sequential([tk.Input((3,)), tk.layers.Dense(2)], name="net")
    checkpoint = Checkpoint(model)
    with pytest.warns(UserWarning, match=r"'net' is not compiled.*optimizer=optimizer"):
        checkpoint.save(tmp_path / "x")
    checkpoint.restore(tmp_path / "x")
    model.trainable = False
    Checkpoint(model).save(tmp_path / "y")  # no state is lost


def test_missing_folder_is_named(tmp_path):
    def of(group):
        with pytest.raises(UnwritableFileError, match=r"create it with os\.makedirs"):
            Checkpoint(make(1), group).save(tmp_path / "new" / "x")

    local.run(2, of)
    assert not os.listdir(tmp_path)
