"""Test that a run which ends in one process ends in all after the same step."""

from types import SimpleNamespace

import pytest

from tests.distribution.jobs import run
from toolkit import callbacks as cb
from toolkit.comm import exchange, exchange_number, local
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.training.agreement import Agreement


class Job:
    """A job as an agreement uses it."""

    recovery = SimpleNamespace(version=0)  # no rank is lost

    def __init__(self, group):
        self.group, self.agreed = group, 0

    def exchange(self, value):
        return exchange(self.group, value)

    def agree(self, subject, number):
        self.agreed += 1
        return exchange_number(self.group, subject, number)


class StoppingCallback(cb.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


def test_all_ranks_stop_with_one():
    def of(group):
        callbacks_of_rank = [StoppingCallback()] if group.rank == 1 else []
        agreement = Agreement(Job(group), CallbackList(callbacks_of_rank), {})
        stops = [
            agreement.should_stop(group.rank == 1 and step == 5) for step in range(7)
        ]
        return stops.index(True), sum(stops)

    assert local.run(3, of) == [(5, 1)] * 3


def test_ranks_agree_periodically_without_stopping_callbacks(tmp_path):
    def of(group):
        job = Job(group)
        calls = [cb.TensorBoard(tmp_path), cb.ModelCheckpoint("a.keras")]
        agreement = Agreement(job, CallbackList(calls), {})
        first = [agreement.should_stop(False) for _ in range(2000)]
        agreed = job.agreed
        late = [agreement.should_stop(group.rank == 0) for _ in range(100_000)]
        assert not agreement.should_stop(False, force=True)
        return any(first), agreed, late.index(True)

    reports = local.run(2, of)
    assert reports[0] == reports[1]
    assert not reports[0][0] and reports[0][1] < 200


def test_interrupt_of_one_rank_raises_on_all():
    def of(group):
        agreement = Agreement(Job(group), CallbackList([StoppingCallback()]), {})
        assert not agreement.should_stop(False)
        if group.rank == 2:
            agreement._handle_signal(2, None)
        with pytest.raises(KeyboardInterrupt):
            agreement.should_stop(False)
        assert not agreement.should_stop(False)

    local.run(3, of)


def test_second_interrupt_raises_immediately():
    agreement = Agreement(Job(local.single()), CallbackList(), {})
    with pytest.raises(KeyboardInterrupt), agreement:
        import signal

        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_interrupt_after_the_last_step_raises():
    import signal

    agreement = Agreement(Job(local.single()), CallbackList(), {})
    with pytest.raises(KeyboardInterrupt), agreement:
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_saving_callback_must_be_on_all_ranks():
    def of(group):
        calls = [cb.ModelCheckpoint("a.keras")] if group.rank == 0 else []
        words = "save: ModelCheckpoint on rank 0; .*: none on rank 1, 2"
        with pytest.raises(ArgumentError, match=words):
            Agreement(Job(group), CallbackList(calls), {})

    local.run(3, of)


HOW = {
    "step": """
        class Mine(tk.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if rank == 1 and batch == 3: self.model.stop_training = True
        calls, expected = [Mine()] if rank == 1 else [], [0, 4]
    """,
    "epoch": """
        class Mine(tk.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if rank == 1 and epoch == 1: self.model.stop_training = True
        calls, expected = [Mine()] if rank == 1 else [], [1, 20]
    """,
    "nan": """
        x[17] = np.nan  # one process has this row
        calls, expected = [tk.callbacks.TerminateOnNaN()], [0, 3]
    """,
}
STOPPED = """
distribution.set_distribution(distribution.DataParallel(shards=2))
x = np.random.default_rng(0).random((160, 6), "float32")
y = x[:, :1].copy()
{how}
model = network()
history = model.fit(x, y, 8, 4, verbose=0, callbacks=calls, shuffle=False)
steps = int(model.optimizer.iterations)
assert model.stop_training and history.epoch[-1] == expected[0], history.epoch
assert steps == expected[0] * 20 + expected[1], steps
tell([steps, state_of(model)])
"""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.one_in(3)
def test_training_stops_at_one_step_on_all_ranks(tmp_path, how):
    reports = run(tmp_path, 2, STOPPED.format(how=dedented(HOW[how])))
    assert reports[0] == reports[1]
    if how == "nan":  # one process stops at this step, too
        assert run(tmp_path, 1, STOPPED.format(how=dedented(HOW[how]))) == reports[:1]


def dedented(text):
    lines = text.strip("\n").splitlines()
    return "\n".join(line.removeprefix(" " * 8) for line in lines)


def test_ctrl_c_for_one_process_stops_all(tmp_path):
    script = """
    distribution.set_distribution(distribution.DataParallel(shards=2))
    ended = []

    class Mine(tk.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if rank == 1 and epoch == 3: os.kill(os.getpid(), signal.SIGINT)

        def on_train_end(self, logs=None):
            ended.append(rank)

    x = np.ones((64, 6), "float32")
    model = network()
    try:
        model.fit(x, x[:, :1], 8, 100000, verbose=0, callbacks=[Mine()])
    except KeyboardInterrupt:
        tell([int(model.optimizer.iterations), state_of(model), ended == [rank]])
    """
    reports = run(tmp_path, 2, script)
    assert reports[0] == reports[1] and reports[0][2] and reports[0][0] > 24


def test_exception_of_a_callback_in_one_process_ends_all(tmp_path):
    script = """
    distribution.set_distribution(distribution.DataParallel())

    class Mine(tk.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if rank == 1 and batch == 2: raise ValueError("no more")

    x = np.ones((64, 6), "float32")
    network().fit(x, x[:, :1], 8, 9, verbose=0, callbacks=[Mine()])
    """
    process = run(tmp_path, 3, script, code=1)
    assert process.errors.count("Traceback") == 1 and "no more" in process.errors


def test_write_error_of_the_chief_is_reported_once(tmp_path):
    script = """
    distribution.set_distribution(distribution.DataParallel())
    model = network()
    model.build((None, 6))
    if sys.argv[1:] == ["caught"]:
        try:
            model.save_weights("/proc/no/a.weights.h5")
        except OSError:
            pass
    model.save_weights("/proc/no/a.weights.h5")
    """
    for arguments in ([], ["caught"]):
        process = run(tmp_path, 2, script, *arguments, code=1)
        assert process.errors.count("UnwritableFileError: cannot write '/proc/no") == 1
