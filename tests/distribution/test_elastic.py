"""Jobs that lose ranks in the middle of training, and go on."""

from textwrap import dedent

import pytest

from tests.distribution.jobs import needs_mpi, run

TRAIN = """
    import threading
    distribution.set_distribution(distribution.DataParallel(shards=4{options}))
    tk.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.random((62, 20), "float32"), random.integers(0, 4, 62)
    model = tk.Sequential([
        layers.Dense(64, activation="relu"), layers.BatchNormalization(),
        layers.Dropout(0.2), layers.Dense(4, activation="softmax"),
    ])

    class Lose(tk.callbacks.Callback):
        steps = 0

        def on_train_batch_begin(self, batch, logs=None):
            self.steps += 1
            {moment}

    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(
        x, y, batch_size=15, epochs=6, verbose=0, validation_split=0.2,
        callbacks=[Lose()],
    ).history
    bits = digest(*model.variables, *model.optimizer.variables, model.predict(x))
    tell([bits, history, comm.world().size])
"""


def train(folder, processes, moment="pass", elastic=True, options=""):
    """[hash, history, number of ranks at the end] of every rank that is left."""
    text = dedent(TRAIN).format(moment=moment, options=options)
    return run(folder, processes, text, flags=["--elastic"] if elastic else [])


KILL = "os.kill(os.getpid(), signal.{})"
LATER = "threading.Timer(0.01, lambda: os.kill(os.getpid(), 9)).start()"


@needs_mpi
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
def test_fit_goes_on_without_lost_ranks_to_the_same_bits(tmp_path, moment):
    ((*whole, _),) = train(tmp_path, 1, elastic=False)
    left = 1 if "(2, 6)" in moment else 2
    assert train(tmp_path, 3, moment) == [[*whole, left]] * left
