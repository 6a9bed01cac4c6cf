"""Test files and prints in a job: one process writes, and its peers take part."""

import numpy as np
import pytest

from tests.comm import ranks
from tests.distribution.jobs import run
from toolkit.comm import local
from toolkit.distribution.chief import notify_gather, on_chief
from toolkit.errors import CommunicationError, UnwritableFileError


class Part:
    """A variable that has a different number in each rank."""

    def __init__(self, group, number):
        self.group, self.number = group, number
        self.placement = self

    def numpy(self):
        notify_gather(self)
        values = np.empty(self.group.size, np.int64)
        self.group.all_gather(np.array([self.number + self.group.rank]), values)
        return values


def test_chief_reads_the_values_of_its_peers():
    def of(group):
        variables = [Part(group, 10), Part(group, 20), Part(group, 30)]
        written = []

        def inner():
            written.append(variables[2].numpy().tolist())

        def work():
            written.append(variables[1].numpy().tolist())
            on_chief(group, inner)
            written.append(variables[1].numpy().tolist())

        on_chief(group, work, variables)
        return written

    first = [[20, 21, 22], [30, 31, 32], [20, 21, 22]]
    assert local.run(3, of) == [first, [], []]


@pytest.mark.parametrize(
    "error, peer_errors",
    [
        (UnwritableFileError("no space"), UnwritableFileError),
        (OSError("no space"), CommunicationError),
        (KeyboardInterrupt("no space"), CommunicationError),
    ],
)
def test_failure_of_the_chief_is_raised_by_all(error, peer_errors):
    def of(group):
        def work():
            raise error

        kind = type(error) if group.rank == 0 else peer_errors
        with pytest.raises(kind, match="no space"):
            on_chief(group, work)
        return True

    assert local.run(2, of) == [True, True]


def test_missing_peer_is_no_deadlock():
    def of(group):
        other = Part(group, 1)
        with pytest.raises(CommunicationError, match="one process cannot read"):
            on_chief(group, other.numpy, [Part(group, 2)])

    local.run(2, of)


CALLBACKS = """
shared = sys.argv[1] == "split"
if shared:
    mesh = distribution.DeviceMesh((1, size), ["batch", "model"])
    layouts = distribution.LayoutMap(mesh)
    layouts["dense/kernel"] = (None, "model")
    distribution.set_distribution(distribution.ModelParallel(layout_map=layouts))
else:
    distribution.set_distribution(distribution.DataParallel(shards=4))
opened, here = [], os.getcwd()

def note(event, arguments):
    if event == "open" and str(arguments[0]).startswith(here):
        if (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            opened.append(arguments[0])

sys.addaudithook(note)
from toolkit import callbacks as cb
model = network()
model.build((None, 6))
random = np.random.default_rng(0)
x = random.random((20, 6), "float32")
calls = [
    cb.ModelCheckpoint(here + "/w{epoch}.weights.h5", save_weights_only=True),
    cb.ModelCheckpoint(here + "/m.keras", monitor="loss", save_best_only=True),
    cb.CSVLogger(here + "/log.csv"), cb.TensorBoard(here + "/logs", histogram_freq=1),
    cb.BackupAndRestore(here + "/backup", save_freq=2, double_checkpoint=True),
]
history = model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=2, callbacks=calls)
model.save(here + "/whole.keras")
model.save(here + "/folder", zipped=False)
model.save_weights(here + "/parts.weights.json", max_shard_size=1)
there = sorted(str(path) for path in Path().rglob("*") if path.is_file())
other = tk.saving.load_model("whole.keras")
same = digest(*model.get_weights()) == digest(*other.get_weights())
model.load_weights("w1.weights.h5")
tell([history.history, len(opened), there, same, digest(*model.get_weights())])
"""


@pytest.mark.parametrize("how", ["split", "whole"])
@pytest.mark.one_in(2)
def test_files_are_written_by_one_process(tmp_path, how):
    reports = run(tmp_path, 2, CALLBACKS, how)
    (_, opened, exists, same, _), peer_reports = reports[0], reports[1:]
    assert opened and same
    for logs, count, files, all_lines, weights in peer_reports:
        assert count == 0, "another process than the first wrote files"
        assert (logs, files, all_lines, weights) == (
            reports[0][0],
            exists,
            True,
            reports[0][4],
        )
    expected = ["folder/model.weights.h5", "log.csv", "m.keras", "w1.weights.h5"]
    assert set(expected) <= set(exists)
    assert not any("backup" in path for path in exists)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3


ALONE = """
    distribution.set_distribution(distribution.DataParallel())
    x = np.ones((80, 6), "float32")
    model = network()
    model.fit(x, x[:, :1], verbose=0)

    class Save(tk.callbacks.Callback):
        _never_stops = sys.argv[1] == "next step"
        def on_train_batch_end(self, batch, logs=None):
            if rank == 0: model.save_weights("alone.weights.h5")  # only here

    if sys.argv[1] == "evaluate":
        if rank == 0: model.save_weights("alone.weights.h5")  # only here
        model.evaluate(x, x[:, :1], verbose=0)
    else:
        model.fit(x, x[:, :1], verbose=0, callbacks=[Save()])
"""


@pytest.mark.parametrize("engine", ranks.ENGINES)
@pytest.mark.parametrize("other", ["evaluate", "agreement", "next step"])
@pytest.mark.one_in(3)
def test_job_with_a_save_of_a_single_process_ends_at_once(tmp_path, other, engine):
    """The limit of the whole job is half of the time that a call may wait."""
    flags, code = ranks.FLAGS[engine], 1 if engine == "sockets" else 124
    limits = {"timeout": 240, "seconds": 120}
    process = run(tmp_path, 2, ALONE, other, **limits, code=code, flags=flags)
    words = "different collectives" if engine == "sockets" else "makes another call"
    assert words in process.errors
    if other != "next step" and engine == "mpi":
        assert "model.save_weights" in process.errors and "only here" in process.errors
        assert "an operation that rank 0 writes for all ranks" in process.errors


def test_output_is_printed_once(tmp_path):
    script = """
    distribution.set_distribution(distribution.DataParallel())
    x = np.ones((8, 6), "float32")
    stop = tk.callbacks.EarlyStopping("loss", patience=0, min_delta=9, verbose=1)
    network().fit(x, x[:, :1], epochs=5, callbacks=[stop], verbose=2)
    raise SystemExit(3)
    """
    process = run(tmp_path, 2, script, code=3)
    assert process.out.count("early stopping") == 1
    assert process.out.count("Epoch 2/5") == 1


CREATED_ALONE = """
    distribution.set_distribution(distribution.DataParallel())
    x = np.ones((80, 6), "float32")
    model = network()
    if rank == 0:
        distribution.Checkpoint(model).save("step-1")  # only here
    model.fit(x, x[:, :1], verbose=0)
"""


@pytest.mark.parametrize("engine", ranks.ENGINES)
def test_job_with_a_checkpoint_of_a_single_process_ends_at_once(tmp_path, engine):
    flags = ranks.FLAGS[engine]
    limits = {"timeout": 240, "seconds": 120, "code": 124}
    process = run(tmp_path, 2, CREATED_ALONE, **limits, flags=flags)
    assert "makes another call" in process.errors
    assert "only here" in process.errors
