"""Steps of `fit` of whole networks in float32, compared with Keras and torch.

    python benchmarks/peers/fits.py --peers DIR
    python benchmarks/peers/fits.py --peers DIR --only unet --runs 3
    python benchmarks/peers/fits.py --quick

The same Keras code runs on toolkit and on Keras with TensorFlow, torch and JAX. torch
also runs a handwritten loop, eager and compiled. DIR is the output of make_peers.sh;
without it only toolkit runs. Each runs in a separate process, and they alternate. The
script prints the seconds of a step. It also prints the number of trained weights and
the ratio of the last epoch's loss to the first epoch's. These show that all train the
same network, and that all of them learn.
"""

import argparse
import sys
from contextlib import ExitStack, closing
from functools import cache, partial
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import fits_networks
import numpy as np
from harness import print_case, save
from peers_worker import PEERS

from toolkit.bench import report
from toolkit.bench.measure import epoch_timer
from toolkit.bench.processes import (
    Worker,
    WorkerCommand,
    interleave_samples,
    serve,
    thread_environment,
)
from toolkit.bench.workloads import Workload

OURS = "toolkit"
BY_HAND = ("torch", "torch.compile")
BAR = 0.6


def images(size, labels, count):
    """Return random images, each with a label from `labels(generator, count)`."""
    random = np.random.default_rng(0)
    x = random.random((count, size, size, 3), dtype="float32")
    return x, labels(random, count)


def classes(random, count):
    """Return one of 1,000 classes for each image."""
    return random.integers(0, 1000, count).astype("int32")


def masks(random, count):
    """Return 0 or 1 for each pixel, in squares of 8."""
    coarse = random.integers(0, 2, (count, 16, 16, 1))
    return coarse.repeat(8, 1).repeat(8, 2).astype("float32")


def texts(count):
    """Return two texts, and the second one shifted by a token."""
    random = np.random.default_rng(0)
    shape = (count, 2, fits_networks.LENGTH + 1)
    text = random.integers(0, fits_networks.VOCABULARY, shape).astype("int32")
    return text[:, :, :-1].copy(), text[:, 1, 1:].copy()


def workload(title, network, data, batch, steps):
    """Return a training workload with the same bar for all libraries."""
    return Workload(title, "fit", network, data, batch, steps, BAR)


WORKLOADS = {
    "resnet50": workload(
        "ResNet-50, batch 8, 224²",
        fits_networks.resnet50, partial(images, 224, classes), 8, 2,
    ),
    "mobilenet_v2": workload(
        "MobileNetV2, batch 16, 128²",
        fits_networks.mobilenet_v2, partial(images, 128, classes), 16, 6,
    ),
    "unet": workload(
        "U-Net, batch 8, 128²",
        fits_networks.unet, partial(images, 128, masks), 8, 3,
    ),
    "vit_tiny": workload(
        "ViT-Tiny, batch 16, 224²",
        fits_networks.vit_tiny, partial(images, 224, classes), 16, 2,
    ),
    "seq2seq": workload(
        "GRU seq2seq, batch 64, 32 tokens",
        fits_networks.seq2seq, texts, 64, 12,
    ),
}  # fmt: skip


class KerasTrainer:
    """Trainer of a network in Keras code: `epoch` returns seconds and the loss."""

    def __init__(self, module, workload):
        self.keras = import_module(module)
        self.model = workload.build(self.keras)
        self.data = workload.make_data()
        self.timer = epoch_timer(self.keras)
        self.batch = workload.batch

    def parameters(self):
        """Return the number of trained parameters."""
        return sum(int(np.prod(w.shape)) for w in self.model.trainable_variables)

    def epoch(self):
        """Train on each sample once."""
        options = {"batch_size": self.batch, "verbose": 0, "callbacks": [self.timer]}
        self.model.fit(*self.data, **options)
        return self.timer.seconds, self.timer.loss


@cache
def trainer(way, name, quick):
    """Return a network's trainer, its workload, and the list of its epoch losses."""
    workload = WORKLOADS[name].shorten() if quick else WORKLOADS[name]
    if way in BY_HAND:
        by_hand = import_module("fits_torch").Trainer
        trainer_object = by_hand(name, workload, way == "torch.compile")
    else:
        trainer_object = KerasTrainer(OURS if way == OURS else "keras", workload)
    return (
        trainer_object,
        workload,
        [trainer_object.epoch()[1]],
    )  # the first epoch compiles


def prepare(way, quick, question):
    """Return a sampler of seconds per step, number of weights, or loss ratio."""
    name, figure = question.split()
    fitted, workload, losses = trainer(way, name, quick)

    def seconds():
        spent, loss = fitted.epoch()
        losses.append(loss)
        return spent / workload.steps

    return {
        "step": seconds,
        "weights": fitted.parameters,
        "loss": lambda: losses[-1] / losses[0],
    }[figure]


def entries(options):
    """Return the process command of each library, by name."""
    command = (sys.argv[0], *(["--quick"] if options.quick else []), "--worker")
    environment = thread_environment(options.threads)
    yield OURS, WorkerCommand((sys.executable, *command, OURS), environment)
    for name, peer in PEERS.items() if options.peers else ():
        python = Path(options.peers, peer.folder, "bin", "python")
        if "fit" not in peer.kinds:
            continue
        if not python.exists():
            print(f"{name} is left out: there is no {python}")
            continue
        yield (
            name,
            WorkerCommand(
                (str(python), *command, name), environment | peer.environment
            ),
        )


def check(name, workers):
    """Print the number of trained weights and the loss ratio of each library."""
    values = {}
    for figure in ("weights", "loss"):
        answers = {way: worker.query(f"{name} {figure}") for way, worker in workers}
        values[figure] = {way: a["value"] for way, a in answers.items() if "value" in a}
    for way, weights in values["weights"].items():
        loss_ratio = values["loss"][way]
        print(f"  {way:24} {weights:12,} weights, loss x {loss_ratio:.3f}", flush=True)
    return values


def compare(name, options):
    """Measure all libraries in separate processes; print and return the row."""
    with ExitStack() as stack:
        workers = {
            way: stack.enter_context(closing(Worker(entry)))
            for way, entry in entries(options)
        }
        asks = {way: partial(w.query, f"{name} step") for way, w in workers.items()}
        outcome = interleave_samples(asks, 1 if options.quick else options.runs)
        print_case(WORKLOADS[name].title, outcome)
        row = outcome.row(name) | check(name, workers.items())
    if ratio := report.ratio(row):
        verdict = report.Verdict(ratio, BAR, ratio <= BAR)
        print(f"  of the best peer's: {verdict}", flush=True)
    return row


def main():
    """Run the comparison, or run as one of its processes."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--threads", type=int, default=2, help="of each process")
    options.add_argument("--json", metavar="PATH", help="where to keep every run")
    options.add_argument("--only", default="", help="networks with this in their name")
    options.add_argument("--peers", metavar="DIR", help="their environments")
    options.add_argument("--quick", action="store_true", help="tiny batches, one run")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.worker:
        serve(partial(prepare, options.worker, options.quick))
        return
    rows = []
    for name in WORKLOADS:
        if options.only in name:
            rows.append(compare(name, options))
            save(options.json, rows, threads=options.threads)


if __name__ == "__main__":
    main()
