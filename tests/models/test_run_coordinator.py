"""Test at which points a run coordinates with the other processes of a job."""

import numpy as np
import pytest

import toolkit as tk
from toolkit.compiler import distribution_context
from toolkit.models.training.run_coordinator import JobCoordinator, coordinate_run


class Job:
    """A job of one process that records the calls of its recovery."""

    is_chief, num_processes, auto_shard_dataset = True, 1, True

    def __init__(self):
        self.calls = []
        self.recovery = self

    def begin(self, model):
        self.calls.append("begin")

    def after_step(self):
        self.calls.append("after_step")

    def end(self):
        self.calls.append("end")

    def callbacks(self):
        return [tk.callbacks.TerminateOnNaN()]


@pytest.fixture
def job():
    job = Job()
    distribution_context.set_current(job)
    yield job
    distribution_context.set_current(None)


@pytest.fixture
def model():
    model = tk.Sequential([tk.Input((2,)), tk.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    return model


class StopAtStep(tk.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == self.step


@pytest.mark.parametrize("step, count", [(0, 0), (2, 2), (None, 6)])
def test_eager_run_of_a_job_uses_only_its_recovery(job, model, step, count):
    x, y = np.ones((6, 2), "float32"), np.ones((6, 1), "float32")
    model.fit(x, y, 2, epochs=2, verbose=0, callbacks=[StopAtStep(step)])
    assert job.calls == ["begin", *["after_step"] * count, "end"]


def test_recovery_ends_after_an_error(job, model):
    class Fails(tk.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise RuntimeError("no more")

    x, y = np.ones((6, 2), "float32"), np.ones((6, 1), "float32")
    with pytest.raises(RuntimeError, match="no more"):
        model.fit(x, y, 6, verbose=0, callbacks=[Fails()])
    assert job.calls == ["begin", "after_step", "end"]


def test_callbacks_of_the_launcher_are_added(job, model):
    assert coordinate_run(model).add_callbacks(None) is None
    model.run_eagerly = False
    run = coordinate_run(model)
    assert isinstance(run, JobCoordinator) and run.is_shared
    history = tk.callbacks.History()
    added = run.add_callbacks(history)
    assert added[0] is history and isinstance(added[1], tk.callbacks.TerminateOnNaN)
    complete = tk.callbacks.CallbackList([history])
    assert run.add_callbacks(complete) is complete


def test_run_without_a_job_is_not_shared(model):
    run, batch, outputs = coordinate_run(model), object(), object()
    assert not run.is_shared
    assert run.complete_batch(batch) is batch
    assert run.local_outputs(outputs, batch) is outputs
    assert run.end_epoch(True) and run.should_stop(True)
    assert not run.end_training_step(False)
