"""What is measured: the table of workloads, with their data and their bars.

A bar bounds our figure divided by that of the best of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from toolkit.bench import networks
from toolkit.bench.networks import CONTEXT, TEXT_LENGTH, VOCABULARY, WORDS

Data = tuple[Any, Any]


@dataclass(frozen=True)
class Workload:
    """A network, its data, and what is done with them.

    title: what it is, in a few words.
    kind: what is done, one of KINDS in `toolkit.bench.measure`.
    build: makes the network from the module `keras`.
    data: (inputs, targets) of so many samples, NumPy arrays.
    batch: samples in a batch.
    steps: batches in an epoch, or in what is predicted.
    bar, stretch: what to reach against the best of the others, and what to aim at.
    """

    title: str
    kind: str
    build: Callable[[Any], Any]
    data: Callable[[int], Data]
    batch: int
    steps: int = 1
    bar: float | None = None
    stretch: float | None = None

    def make_data(self) -> Data:
        """The inputs and targets of all steps."""
        return self.data(self.batch * self.steps)

    def shortened(self) -> Workload:
        """A version that takes hardly any time, to see that it runs."""
        return replace(self, batch=min(self.batch, 4), steps=min(self.steps, 2))


def _images(shape: tuple[int, ...], count: int, one_hot: bool = False) -> Data:
    """Made-up images and their labels, of ten classes."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.random((count, *shape), dtype="float32")
    labels = random.integers(0, 10, count)
    return x, np.eye(10, dtype="float32")[labels] if one_hot else labels.astype("int32")


def _numbers(count: int) -> Data:
    """Made-up vectors, each with a number that is nearly a function of it."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.standard_normal((count, 16), dtype="float32")
    return x, x.sum(axis=1, keepdims=True)


def _texts(count: int) -> Data:
    """Made-up texts, each with 0 or 1."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.integers(0, WORDS, (count, TEXT_LENGTH)).astype("int32")
    return x, random.integers(0, 2, (count, 1)).astype("float32")


def _tokens(count: int) -> Data:
    """Made-up tokens, each with the one that comes next."""
    import numpy as np

    random = np.random.default_rng(0)
    text = random.integers(0, VOCABULARY, (count, CONTEXT + 1)).astype("int32")
    return text[:, :-1].copy(), text[:, 1:].copy()


cifar: partial[Data] = partial(_images, (32, 32, 3), one_hot=True)
small_images: partial[Data] = partial(_images, (32, 32, 3))
vectors: partial[Data] = partial(_images, (784,))
grey_images: partial[Data] = partial(_images, (28, 28))


WORKLOADS = {
    "cifar_cnn/fit": Workload(
        "CIFAR-10 CNN `fit`, batch 256",
        "fit", networks.cifar_cnn, cifar, 256, 8, 0.70, 0.55,
    ),
    "mnist_mlp/fit": Workload(
        "MNIST MLP 784-512-512-10 `fit`, Adam, batch 128",
        "fit", networks.mnist_mlp, vectors, 128, 128, 0.70,
    ),
    "tiny_mlp/fit": Workload(
        "tiny MLP 16-32-32-1 `fit`, batch 32",
        "fit", networks.tiny_mlp, _numbers, 32, 512, 0.25,
    ),
    "mlp/call": Workload(
        "MLP forward call `[60, 28, 28]`, `model(x)` eagerly",
        "call", networks.mlp, grey_images, 60, 1, 0.50,
    ),
    "mlp/function": Workload(
        "MLP forward call `[60, 28, 28]` as a `function`",
        "function", networks.mlp, grey_images, 60, 1, 0.75,
    ),
    "lstm/fit": Workload(
        "LSTM(128) text classifier `fit`, sequence 80, batch 64",
        "fit", networks.lstm, _texts, 64, 12, 0.70,
    ),
    "gpt/fit": Workload(
        "2-layer GPT `fit`, d=128, T=128, vocabulary 512, batch 32",
        "fit", networks.gpt, _tokens, 32, 8, 0.70,
    ),
    "resnet/fit": Workload(
        "BatchNorm CNN with residual blocks `fit`, batch 128",
        "fit", networks.resnet, small_images, 128, 8, 0.80,
    ),
    "cifar_cnn/predict_one": Workload(
        "CIFAR-10 CNN `predict` of one sample",
        "predict", networks.cifar_cnn, cifar, 1, 1, 0.35,
    ),
    "cifar_cnn/predict_many": Workload(
        "CIFAR-10 CNN `predict` of 2,048 samples at batch 256",
        "predict", networks.cifar_cnn, cifar, 256, 8, 0.90, 0.65,
    ),
    "cifar_cnn/start_cold": Workload(
        "CIFAR-10 CNN: import, build, compile, first step; cold cache",
        "start_cold", networks.cifar_cnn, cifar, 256, 1, 0.50,
    ),
    "cifar_cnn/start_warm": Workload(
        "CIFAR-10 CNN: import, build, compile, first step; warm cache",
        "start_warm", networks.cifar_cnn, cifar, 256, 1, 0.25,
    ),
    "cifar_cnn/memory": Workload(
        "CIFAR-10 CNN `fit`, peak resident memory",
        "memory", networks.cifar_cnn, cifar, 256, 8, 0.50,
    ),
}  # fmt: skip


BATCH, CHANNELS, DEPTH = 64, 32, 4


def _stack(batch: int, width: int, depth: int) -> Workload:
    return Workload(
        f"{depth} convolutions of {width} channels `fit`, batch {batch}",
        "fit",
        partial(networks.conv_stack, width=width, depth=depth),
        partial(_images, (16, 16, width)),
        batch,
        8,
    )


def stack_flops(batch: int, width: int, depth: int) -> int:
    """FLOPs of the convolutions in a step; the first has no gradient to its input."""
    return 2 * batch * 16 * 16 * 9 * width * width * (3 * depth - 1)


STACKS = {
    "base": (BATCH, CHANNELS, DEPTH),
    "batch x 2": (2 * BATCH, CHANNELS, DEPTH),
    "width x 2": (BATCH, 2 * CHANNELS, DEPTH),
    "depth x 2": (BATCH, CHANNELS, 2 * DEPTH),
}
GROWTH_BAR = 1.05  # how much faster than FLOPs the time may grow
GROWTH = {f"growth/{name}": _stack(*sizes) for name, sizes in STACKS.items()}
SPEED_UP = "cifar_cnn/fit"  # the workload that runs on one thread and on two
SPEED_UP_BAR = 1.8

ALL = WORKLOADS | GROWTH
