"""Table of workloads, with their data and targets.

A target (bar) is a limit of our figure divided by the best peer's.
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
    """Network, its data, and the measured operation.

    title: a short description.
    kind: the operation, one of KINDS in `toolkit.bench.measure`.
    build: a function that creates the network from the module `keras`.
    data: a function from a number of samples to (inputs, targets), NumPy arrays.
    batch: the batch size.
    steps: the number of batches in an epoch, or in a prediction.
    bar, stretch: the target ratio to the best peer, and a more ambitious one.
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
        """Return the inputs and targets of all steps."""
        return self.data(self.batch * self.steps)

    def shorten(self) -> Workload:
        """Return a very short version, for a smoke test."""
        return replace(self, batch=min(self.batch, 4), steps=min(self.steps, 2))


def _random_images(shape: tuple[int, ...], count: int, one_hot: bool = False) -> Data:
    """Return random images and labels of ten classes."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.random((count, *shape), dtype="float32")
    labels = random.integers(0, 10, count)
    return x, np.eye(10, dtype="float32")[labels] if one_hot else labels.astype("int32")


def _random_vectors(count: int) -> Data:
    """Return random vectors, each with an approximate function value."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.standard_normal((count, 16), dtype="float32")
    return x, x.sum(axis=1, keepdims=True)


def _random_texts(count: int) -> Data:
    """Return random texts, each with 0 or 1."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.integers(0, WORDS, (count, TEXT_LENGTH)).astype("int32")
    return x, random.integers(0, 2, (count, 1)).astype("float32")


def _random_tokens(count: int) -> Data:
    """Return random tokens, each with the next token."""
    import numpy as np

    random = np.random.default_rng(0)
    text = random.integers(0, VOCABULARY, (count, CONTEXT + 1)).astype("int32")
    return text[:, :-1].copy(), text[:, 1:].copy()


cifar: partial[Data] = partial(_random_images, (32, 32, 3), one_hot=True)
small_images: partial[Data] = partial(_random_images, (32, 32, 3))
mnist_vectors: partial[Data] = partial(_random_images, (784,))
grey_images: partial[Data] = partial(_random_images, (28, 28))


WORKLOADS = {
    "cifar_cnn/fit": Workload(
        "CIFAR-10 CNN `fit`, batch 256",
        "fit", networks.cifar_cnn, cifar, 256, 8, 0.70, 0.55,
    ),
    "mnist_mlp/fit": Workload(
        "MNIST MLP 784-512-512-10 `fit`, Adam, batch 128",
        "fit", networks.mnist_mlp, mnist_vectors, 128, 128, 0.70,
    ),
    "tiny_mlp/fit": Workload(
        "tiny MLP 16-32-32-1 `fit`, batch 32",
        "fit", networks.tiny_mlp, _random_vectors, 32, 512, 0.25,
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
        "fit", networks.lstm, _random_texts, 64, 12, 0.70,
    ),
    "gpt/fit": Workload(
        "2-layer GPT `fit`, d=128, T=128, vocabulary 512, batch 32",
        "fit", networks.gpt, _random_tokens, 32, 8, 0.70,
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


def _stack_workload(batch: int, width: int, depth: int) -> Workload:
    return Workload(
        f"{depth} convolutions of {width} channels `fit`, batch {batch}",
        "fit",
        partial(networks.conv_stack, width=width, depth=depth),
        partial(_random_images, (16, 16, width)),
        batch,
        8,
    )


def stack_flops(batch: int, width: int, depth: int) -> int:
    """Return the FLOPs of a step's convolutions; the first has no input gradient."""
    return 2 * batch * 16 * 16 * 9 * width * width * (3 * depth - 1)


STACKS = {
    "base": (BATCH, CHANNELS, DEPTH),
    "batch x 2": (2 * BATCH, CHANNELS, DEPTH),
    "width x 2": (BATCH, 2 * CHANNELS, DEPTH),
    "depth x 2": (BATCH, CHANNELS, 2 * DEPTH),
}
GROWTH_BAR = 1.05  # limit of the time growth relative to FLOPs
GROWTH = {f"growth/{name}": _stack_workload(*sizes) for name, sizes in STACKS.items()}
SPEED_UP = "cifar_cnn/fit"  # the workload for one and two threads
SPEED_UP_BAR = 1.8

ALL = WORKLOADS | GROWTH
