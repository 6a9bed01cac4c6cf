"""Test jobs that lose ranks during training and continue."""

from textwrap import dedent

import pytest

from tests.comm import ranks
from tests.distribution.jobs import run

TRAIN = """
    import threading
    distribution.set_distribution(distribution.DataParallel(shards=4{options}))
    tk.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.random(({rows}, 20), "float32"), random.integers(0, 4, {rows})
    model = tk.Sequential([
        layers.Dense(64, activation="relu"), layers.BatchNormalization(),
        layers.Dropout(0.2), layers.Dense(4, activation="softmax"),
    ])

    first, second = (Path(__file__).parent / name for name in ("first", "second"))
    is_new = first.exists()

    def lose(step, wait=False, twice=False):
        if step == 5 and rank == 1 and not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if twice and is_new and step == 3 and not second.exists():
            second.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if wait and comm.world().size == 2:
            time.sleep(0.5)  # for the replacement

    class Lose(tk.callbacks.Callback):
        steps = 0

        def on_train_batch_begin(self, batch, logs=None):
            self.steps += 1
            {moment}

    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    {before}
    history = model.fit(
        x, y, batch_size={batch}, epochs=6, verbose=0, validation_split=0.2,
        callbacks=[Lose()],
    ).history
    bits = digest(*model.variables, *model.optimizer.variables, model.predict(x))
    tell([bits, history, comm.world().size])
"""


def script(moment, before="", options="", rows=62, batch=15):
    """Return a script that trains a model and loses ranks at a moment."""
    return dedent(TRAIN).format(
        moment=moment, before=before, options=options, rows=rows, batch=batch
    )


def train(
    folder,
    processes,
    moment="pass",
    *flags,
    before="",
    options="",
    engine="sockets",
    errors=None,
):
    """Return [hash, history, final number of ranks] of every remaining rank."""
    text = script(moment=moment, before=before, options=options)
    # On a busy machine a rank may answer slowly; that is not a loss.
    flags = [*flags, *ranks.FLAGS[engine]]
    return run(folder, processes, text, timeout=15, flags=flags, errors=errors)


KILL = "os.kill(os.getpid(), signal.{})"
LATER = "threading.Timer(0.01, lambda: os.kill(os.getpid(), 9)).start()"


@pytest.mark.parametrize(
    "moment",
    [
        f"if self.steps == 5 and rank == 1: {KILL.format('SIGKILL')}",
        f"if self.steps == 1 and rank == 0: {KILL.format('SIGSEGV')}",
        f"if self.steps == 7 and rank == 2: {LATER}",
        f"if (rank, self.steps) in [(0, 3), (2, 6)]: {KILL.format('SIGTERM')}",
    ],
    ids=["in an epoch", "the first one in the first step", "in a step", "two"],
)
@ranks.for_engines
@pytest.mark.one_in(4)
def test_fit_continues_without_lost_ranks_to_the_same_bits(tmp_path, moment, engine):
    ((*expected, _),) = train(tmp_path, 1)
    remaining = 1 if "(2, 6)" in moment else 2
    reports = train(tmp_path, 3, moment, "--elastic", engine=engine)
    assert reports == [[*expected, remaining]] * remaining


ZERO = ", shard_optimizer=True"


@pytest.mark.parametrize(
    "moment, remaining",
    [
        (f"if self.steps == 5 and rank == 1: {KILL.format('SIGKILL')}", 3),
        (f"if (rank, self.steps) in [(0, 2), (3, 4)]: {KILL.format('SIGKILL')}", 2),
        (f"if self.steps == 7 and rank == 2: {LATER}", 3),
    ],
    ids=["one", "two", "in a step"],
)
@ranks.for_engines
@pytest.mark.one_in(3)
def test_shards_of_lost_ranks_are_restored_from_their_neighbours(
    tmp_path, moment, remaining, engine
):
    ((*expected, _),) = train(tmp_path, 1)
    reports = train(tmp_path, 4, moment, "--elastic", options=ZERO, engine=engine)
    assert reports == [[*expected, remaining]] * remaining


@pytest.mark.slow
def test_shards_that_are_lost_with_their_copies_are_reported(tmp_path):
    moment = f"if self.steps == 5 and rank in (1, 2): {KILL.format('SIGKILL')}"
    with pytest.raises(AssertionError, match="the copy of its shard|one operation"):
        train(tmp_path, 4, moment, "--elastic", options=ZERO)


@ranks.for_engines
def test_lost_rank_is_replaced(tmp_path, engine):
    ((*expected, _),) = train(tmp_path, 1)
    moment = "lose(self.steps, wait=True)"
    flags = ["--elastic", "--replace"]
    # The messages of MPI and its launcher about the lost process are not shown.
    errors = "" if engine == "mpi" else None
    reports = train(tmp_path, 3, moment, *flags, errors=errors, engine=engine)
    assert reports == [[*expected, 3]] * 3


@ranks.for_engines
def test_replacement_has_the_gpu_of_the_lost_rank(tmp_path, monkeypatch, engine):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    text = script("lose(self.steps, wait=True)").replace(
        "tell([bits,", "tell([os.environ['CUDA_VISIBLE_DEVICES'],"
    )
    flags = ["--elastic", "--replace", *ranks.FLAGS[engine]]
    reports = run(tmp_path, 3, text, timeout=15, flags=flags)
    assert sorted(gpu for gpu, *_ in reports) == ["5", "6", "7"]


@pytest.mark.parametrize(
    "before",
    ["", "model.predict(x[:4], verbose=0)"],
    ids=["it comes too late", "the script needs others before fit"],
)
@pytest.mark.slow
def test_replacement_that_cannot_join_is_refused(tmp_path, before):
    ((*expected, _),) = train(tmp_path, 1, before=before)
    flags, last = ["--elastic", "--replace"], "lose(self.steps - 19)"
    reports = train(tmp_path, 3, last, *flags, before=before)
    assert reports == [[*expected, 2]] * 2


@pytest.mark.slow
def test_replacement_is_replaced(tmp_path):
    ((*expected, _),) = train(tmp_path, 1)
    moment = "lose(self.steps, wait=True, twice=True)"
    reports = train(tmp_path, 3, moment, "--elastic", "--replace")
    assert reports == [[*expected, 3]] * 3


@pytest.mark.slow
def test_job_restarts_after_the_last_complete_epoch(tmp_path):
    """The state of a process is lost with it, or MPI ends with any process."""
    options = ", shard_optimizer=True"
    ((bits, _, _),) = train(tmp_path, 1)
    lose = "lose(self.steps - 9)"
    reports = train(tmp_path, 2, lose, "--restarts", "1", options=options)
    assert [report[0] for report in reports] == [bits] * 2
    assert (
        len(reports[0][1]["loss"]) < 6
    )  # the epochs of the other processes do not matter


def test_failing_script_is_not_restarted(tmp_path):
    text = """
    print("begins", flush=True)
    comm.world().barrier()
    raise ValueError("a mistake")
    """
    process = run(tmp_path, 2, text, flags=["--restarts", "3"], code=1)
    assert process.out.count("begins") == 2
    assert process.errors.count("Error: a mistake") == 1
