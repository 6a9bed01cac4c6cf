"""Random rank failures at random moments: recovery time, and bit-identical weights.

    python benchmarks/distributed/lost_ranks.py
    python benchmarks/distributed/lost_ranks.py --kills 5 --replace --mpi openmpi

A small network trains on three ranks (`toolkit run --elastic`). After its first epoch,
one rank gets SIGKILL, SIGSEGV or SIGTERM. "step" is the time of the survivors' step in
which that happens. "replaced" is the time until the original number of ranks computes
again. The final weights must equal the weights of an undisturbed job.
"""

import argparse
import hashlib
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

RANKS = 3
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
SECONDS = 1.2  # maximum delay of the signal


def work(epochs):
    """Run the work of one rank; each prints its result."""
    import numpy as np

    import toolkit as tk
    from toolkit import comm, distribution, layers

    class Watch(tk.callbacks.Callback):
        """Callback that reports the step time when the number of ranks changes."""

        began, size, lost_at = 0.0, comm.world().size, 0.0

        def on_train_batch_begin(self, batch, logs=None):
            self.began = time.monotonic()

        def on_train_batch_end(self, batch, logs=None):
            size, timestamp = comm.world().size, time.monotonic()
            if size < self.size:
                print(f"step {timestamp - self.began:.4f}", flush=True)
                self.lost_at = self.began
            elif size > self.size and self.lost_at:
                print(f"replaced {timestamp - self.lost_at:.4f}", flush=True)
            self.size = size

        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                print(f"rank {comm.world().rank} is {os.getpid()}", flush=True)

    distribution.set_distribution(distribution.DataParallel(shards=4))
    tk.utils.set_random_seed(0)
    numbers = np.random.default_rng(0)
    x, y = numbers.random((512, 64), "float32"), numbers.integers(0, 4, 512)
    model = tk.Sequential(
        [
            *(layers.Dense(128, "relu"), layers.BatchNormalization()),
            *(layers.Dropout(0.2), layers.Dense(4, "softmax")),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        *(x, y), batch_size=30, epochs=epochs, verbose=0, validation_split=0.2,
        callbacks=[Watch()],
    )  # fmt: skip
    values = [*model.variables, *model.optimizer.variables]
    joined = b"".join(np.asarray(value).tobytes() for value in values)
    print("result", hashlib.sha256(joined).hexdigest(), flush=True)


def run(options, kill=None):
    """Return the output of a job; `kill` is a rank, a signal, and a delay in
    seconds.
    """
    command = [sys.executable, "-m", "toolkit", "run", "--processes", str(RANKS)]
    command += ["--elastic", *(["--replace"] if options.replace else [])]
    command += ["--mpi", options.mpi] if options.mpi else []
    command += ["--timeout", "30", __file__, "--work", "--epochs", str(options.epochs)]
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    processes, text = {}, ""
    for line in job.stdout:
        text += line
        match = re.search(r"rank (\d+) is (\d+)", line)
        if match:
            processes[int(match[1])] = int(match[2])
            if len(processes) == RANKS and kill is not None:
                rank, number, seconds = kill
                time.sleep(seconds)
                os.kill(processes[rank], number)
                kill = None
    return job.wait(), text


def main():
    """Run the jobs, or run as a rank of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--replace", action="store_true")
    parser.add_argument("--mpi", help="an MPI library instead of sockets")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.epochs)
        return 0
    choose = random.Random(1)
    (expected,) = set(re.findall(r"result (\w+)", run(options)[1]))
    equal, steps, replaced = 0, [], []
    for number in range(options.kills):
        kill = choose.randrange(RANKS), SIGNALS[number % 3], choose.random() * SECONDS
        code, text = run(options, kill)
        results = re.findall(r"result (\w+)", text)
        equal += code == 0 and len(results) >= RANKS - 1 and set(results) == {expected}
        steps += map(float, re.findall(r"step (\S+)", text))
        replaced += map(float, re.findall(r"replaced (\S+)", text))
    print(f"{equal} of {options.kills} jobs have the bits of one without a loss")
    for name, seconds in (("step", steps), ("replaced", replaced)):
        if seconds:
            middle, maximum = statistics.median(seconds), max(seconds)
            print(
                f"{name}: median {1e3 * middle:.0f} ms, at most {1e3 * maximum:.0f} ms"
            )
    return 0 if equal == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
