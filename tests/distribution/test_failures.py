"""Errors of one rank of a job: the other ranks raise them, and name rank and layer."""

import pytest

from tests.comm import ranks
from tests.distribution.jobs import run

BEGIN = """
distribution.set_distribution(distribution.DataParallel())
tk.utils.set_random_seed(0)
how = sys.argv[1]
model = tk.Sequential([
    layers.Embedding(50, 8, name="table"), layers.Flatten(),
    layers.Dense(3, "softmax", name="top"),
])
model.compile("adam", "sparse_categorical_crossentropy")
x = np.random.default_rng(0).integers(0, 50, (64, 4))
y = np.zeros(64, int)
if how in ("index", "index of all"):
    x[9 if how == "index" else slice(None)] = -7

class Fails(tk.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2 and (rank == 1 or how.endswith("of all")):
            if how.startswith("callback"):
                raise ValueError("a mistake")
            if how == "exit":
                sys.exit(0)
            if how == "interrupt":
                raise KeyboardInterrupt

class Data(tk.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2 and rank == 1:
            raise OSError("a damaged file")
        return x[index * 16 : index * 16 + 16], y[:16]

@tk.function(distribute=True)
def step(x):
    return tk.ops.sum(tk.ops.take(model.layers[0].embeddings, x, axis=0))

def train():
    if how == "data":
        model.fit(Data(), verbose=0)
    elif how == "loop":
        for number in range(4):
            step(x[:16] + (100 * (number == 2) if rank == 1 else 0) * (x[:16] > 3))
    else:
        model.fit(
            x, y, batch_size=16, verbose=0, callbacks=[Fails()], shuffle=False
        )

def error_of(work):
    start = time.monotonic()
    try:
        work()
    except BaseException as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["none", "", 0]
"""

HANDLED = (
    BEGIN
    + """
first = error_of(train)
tell([first, error_of(lambda: model.evaluate(x % 50, y, verbose=0))])
"""
)


@pytest.mark.parametrize(
    "how, name, text",
    [
        ("index", "OutOfRangeError", "index -7 is out of range"),
        ("callback", "ValueError", "a mistake"),
        ("data", "OSError", "a damaged file"),
        ("exit", "SystemExit", "0"),
        ("interrupt", "KeyboardInterrupt", ""),
    ],
)
@pytest.mark.one_in(3)
def test_other_ranks_raise_the_error_of_a_rank(tmp_path, how, name, text):
    reports = run(tmp_path, 3, HANDLED, how)
    (own, text_of_own, _), _ = reports[1]
    assert own == name and text in text_of_own
    for rank in (0, 2):
        (other, message, seconds), _ = reports[rank]
        assert other == (name if name == "OutOfRangeError" else "CommunicationError")
        assert f"rank 1 raised {name}" in message and text in message
        assert (
            "gradients of sequential/top" in message and "of epoch 1 of fit" in message
        )
        assert seconds < 20
    for _, (later, message, _) in reports:  # no rank uses values of another step
        assert later == "CommunicationError"
        assert f"rank 1 raised {name}" in message and "start the job again" in message


@pytest.mark.parametrize("how", ["index of all", "callback of all"])
def test_errors_of_all_ranks_end_no_job(tmp_path, how):
    for (own, message, _), (later, _, _) in run(tmp_path, 3, HANDLED, how):
        assert own == ("ValueError" if "callback" in how else "OutOfRangeError")
        assert "raised" not in message
        assert later == "none"


@ranks.for_engines_each_day
def test_error_that_a_rank_handles_ends_the_job(tmp_path, engine):
    """A rank that waits in MPI cannot raise an error, so it ends the job."""
    text = BEGIN + "print(error_of(train))\nif rank != 1: raise KeyError('others')"
    process = run(
        tmp_path, 2, text, "callback", code=1, flags=ranks.FLAGS[engine], seconds=60
    )
    if engine == "mpi":
        assert "rank 1 raised ValueError: a mistake; rank 0 waits" in process.errors
        assert "gradients of sequential/top" in process.errors
    else:
        assert "rank 1 raised ValueError: a mistake" in process.out


def test_other_threads_do_not_change_the_position_of_an_error(tmp_path):
    """The writer thread of one rank makes a call before the other ranks."""
    text = """
how = "callback of all"
copy = comm.world().duplicate()
thread = threading.Thread(target=copy.barrier)
if rank == 1:
    thread.start()
    while copy.record.count == 0:
        time.sleep(0.01)
reports = [error_of(train)[:2], error_of(comm.world().barrier)[:2]]
if rank == 0:
    thread.start()
thread.join()
tell(reports)
"""
    expected = [["ValueError", "a mistake"], ["none", ""]]
    assert run(tmp_path, 2, "import threading\n" + BEGIN + text, "") == [expected] * 2
