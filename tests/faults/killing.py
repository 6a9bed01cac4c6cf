"""Kill saves and trainings in child processes without threads.

`test_kills` runs this file as a script: `killing.py KIND FORMAT FOLDER COUNT SEED`.
The last printed line is the result in JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

import toolkit as tk
from toolkit.data import Dataset
from toolkit.errors import ModelFileError

FORMATS = {
    "keras": "x.keras",
    "weights": "x.weights.h5",
    "folder": "x",
    "shards": "x.weights.json",
}
# Code that reads and writes files calls the audit hooks of the interpreter.
EVENTS = ("open", "os.", "shutil.")


@tk.saving.register_keras_serializable("killing")
class Numbered(tk.layers.Layer):
    """A layer whose config, weights and files all contain one number."""

    def __init__(self, number, **kwargs):
        super().__init__(**kwargs)
        self.number = number

    def build(self, shape):
        constant = tk.initializers.Constant(self.number)
        self.a = self.add_weight((100, 1000), constant)
        self.b = self.add_weight((300, 1000), constant)

    def call(self, x):
        return x

    def save_assets(self, folder):
        for name in "ab":
            Path(folder, name).write_text(str(self.number), "utf-8")
        if self.number % 2:  # a file that only some saves have
            Path(folder, "odd").write_text(str(self.number), "utf-8")

    def load_assets(self, folder):
        self.texts = [Path(folder, name).read_text("utf-8") for name in "ab"]
        if Path(folder, "odd").exists():
            self.texts.append(Path(folder, "odd").read_text("utf-8"))


def make(number):
    """Return a model of a number."""
    return tk.Sequential([tk.Input((4,)), Numbered(number, name="numbered")])


def save(kind, path, number):
    model = make(number)
    if kind == "keras":
        model.save(path)
    elif kind == "folder":
        tk.saving.save_model(model, path, zipped=False)
    else:
        limit = 1.3e6 / 2**30 if kind == "shards" else None
        model.save_weights(path, max_shard_size=limit)


def number_in(kind, path):
    """Return the number in a file; raise if there are several."""
    if kind in ("keras", "folder"):
        model = tk.saving.load_model(path)
        layer = model.layers[0]
        numbers = {layer.number, *map(int, layer.texts)}
        assert len(layer.texts) == 2 + layer.number % 2
    else:
        model, numbers = make(-1), set()
        model.load_weights(path)
    for weight in model.get_weights():
        numbers |= set(np.unique(weight).tolist())
    assert len(numbers) == 1, f"mixed: {numbers}"
    return int(numbers.pop())


def run(work, delay=None):
    """Return the exit status of a child that calls `work`; kill it after `seconds`."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    if delay is not None:
        time.sleep(delay)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_event(number, act):
    """Call `act` before the file operation of this number."""
    counter = itertools.count(1)

    def hook(event, arguments):
        if event.startswith(EVENTS) and next(counter) == number:
            act()

    sys.addaudithook(hook)


def left_over(path):
    """Return the staging names that remain next to or in a path."""
    names = [n for p in (path, path.parent) if p.is_dir() for n in os.listdir(p)]
    return [name for name in names if name.startswith(".")]


def full():
    raise OSError(28, "No space left on device")


def kill_at_each_event(kind, path, step):
    """Kill a save at each file operation; a complete save must exist afterwards."""
    kills = 0
    save(kind, path, 1)
    before, number = 1, 2
    for event in itertools.count(1, step):
        status = run(
            lambda e=event, n=number: (
                at_event(e, lambda: os._exit(9)),
                save(kind, path, n),
            )
        )
        number_after = number_in(kind, path)
        assert number_after in (before, number), (event, before, number, number_after)
        if not status:
            assert number_after == number
            break
        kills += 1
        before, number = number_after, number + 1
    assert not left_over(path), left_over(path)
    return kills


def fail_at_each_event(kind, path, step):
    """Let each file operation of a save fail: it raises an error or is complete."""
    failures = 0
    save(kind, path, 1)

    def work(event, number):
        at_event(event, full)
        with suppress(ModelFileError):
            save(kind, path, number)
            os._exit(7)

    before, number = 1, 2
    for event in itertools.count(1, step):
        status = run(lambda e=event, n=number: work(e, n))
        number_after = number_in(kind, path)
        assert status in (0, 7) and number_after in (before, number), (
            event,
            status,
            number_after,
        )
        if status == 7:  # the save returned: its required work is complete
            assert number_after == number, event
            if is_past(kind, path, event):
                break
        failures += 1
        before, number = number_after, number + 1
    save(kind, path, number)
    assert not left_over(path), left_over(path)
    assert number_in(kind, path) == number
    return failures


def is_past(kind, path, event):
    """Return whether a save performs fewer file operations than `number`."""

    def work():
        at_event(event, lambda: os._exit(9))
        save(kind, path, 10_000)

    copy = path.with_name("elsewhere") / path.name
    copy.parent.mkdir(exist_ok=True)
    save(kind, copy, 1)
    path = copy
    return run(work) == 0


def kill_at_random(kind, path, count, seed):
    """Kill saves at random times, sequentially."""
    rng = random.Random(seed)
    save(kind, path, 1)
    began = time.perf_counter()
    assert run(lambda: save(kind, path, 2)) == 0
    takes = time.perf_counter() - began
    kills = new = 0
    before, number = 2, 3
    while kills < count:
        status = run(lambda n=number: save(kind, path, n), rng.uniform(0, takes))
        number_after = number_in(kind, path)
        assert number_after in (before, number), (before, number, number_after)
        assert status in (0, -signal.SIGKILL), status
        kills += status != 0
        new += number_after == number
        before, number = number_after, number + 1
    save(kind, path, number)
    assert not left_over(path), left_over(path)
    assert number_in(kind, path) == number
    return {"kills": kills, "new": new}


def train(folder, out):
    """Train with a backup of each step; return the final weights."""
    tk.utils.set_random_seed(4)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)).astype("float32"), rng.normal(size=(40, 2))
    dropout = tk.layers.Dropout(0.3)
    model = tk.Sequential([tk.Input((4,)), dropout, tk.layers.Dense(2)])
    model.compile("adam", "mse")
    backup = tk.callbacks.BackupAndRestore(folder, save_freq=1, double_checkpoint=True)
    data = Dataset.from_tensor_slices((x, y)).shuffle(40).batch(4).prefetch(2)
    model.fit(data, epochs=3, callbacks=[backup], verbose=0)
    out.write_bytes(b"".join(w.tobytes() for w in model.get_weights()))


def kill_trainings(kind, path, count, seed):
    """Kill trainings at random times: the final bits are unaffected."""
    rng = random.Random(seed)
    complete, out = path.with_name("whole"), path.with_name("out")
    run(lambda: train(path.with_name("first"), complete))  # it compiles
    began = time.perf_counter()
    assert run(lambda: train(path.with_name("second"), complete)) == 0
    takes = time.perf_counter() - began
    kills = ended = 0
    while kills < count:
        out.unlink(missing_ok=True)
        while run(lambda: train(path, out), rng.uniform(0.1, 0.95) * takes):
            kills += 1
            if kills == count:
                break
        assert run(lambda: train(path, out)) == 0
        assert out.read_bytes() == complete.read_bytes(), f"after {kills} kills"
        ended += 1
    return {"kills": kills, "ended": ended}


KINDS = {
    "events": lambda kind, path, count, seed: kill_at_each_event(kind, path, count),
    "failures": lambda kind, path, count, seed: fail_at_each_event(kind, path, count),
    "random": kill_at_random,
    "trainings": kill_trainings,
}


if __name__ == "__main__":
    what, kind, folder, count, seed = sys.argv[1:]
    path = Path(folder, FORMATS.get(kind, "backup"))
    print(json.dumps(KINDS[what](kind, path, int(count), int(seed))))
