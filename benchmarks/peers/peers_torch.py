"""Handwritten torch networks of the suite, at their best and without Keras.

Convolutions run channels last, Adam is the fused one, losses take logits, and
`torch.compile` gets forward pass and loss as one function. Batches are shuffled, and
loss and accuracy are recorded, as `fit` does.
"""

from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn
from torch.nn import functional as F

from toolkit.bench.measure import peak_memory, repeat_call
from toolkit.bench.networks import CONTEXT, HEADS, VOCABULARY, WIDTH, WORDS


def cifar_cnn():
    """Build the network of `toolkit.bench.networks.cifar_cnn`, with logits."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(2304, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)),
    )


def mnist_mlp():
    """Build two wide hidden layers."""
    return nn.Sequential(
        *(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()),
        nn.Linear(512, 10),
    )


def tiny_mlp():
    """Build a network that measures overhead only."""
    return nn.Sequential(
        *(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()),
        nn.Linear(32, 1),
    )


def mlp():
    """Build the network for single calls."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)
    )


class LSTM(nn.Module):
    """Text classifier on the last state."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 128)
        self.lstm = nn.LSTM(128, 128, batch_first=True)
        self.head = nn.Linear(128, 1)

    def forward(self, x):
        _, (state, _) = self.lstm(self.embed(x))
        return self.head(state[0])


class Block(nn.Module):
    """Attention, then two dense layers, each on a normalised input with a residual."""

    def __init__(self, width=WIDTH, heads=HEADS, causal=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        heads = (batch, length, self.heads, width // self.heads)
        projected = self.projections(self.first(x)).split(width, dim=2)
        q, k, v = (array.reshape(heads).transpose(1, 2) for array in projected)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.dense(self.second(x))


class GPT(nn.Module):
    """Transformer of two blocks."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.05)
        self.blocks = nn.Sequential(Block(), Block(), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x) + self.positions))


def convolve(inputs, filters, kernel, stride=1):
    """Return a convolution and batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(filters),
    )


class Residual(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.first = convolve(inputs, filters, 3, stride)
        self.second = convolve(filters, filters, 3)
        same = stride == 1
        self.shortcut = nn.Identity() if same else convolve(inputs, filters, 1, stride)

    def forward(self, x):
        y = self.second(F.relu(self.first(x)))
        return F.relu(y + self.shortcut(x))


def resnet():
    """Build three residual blocks."""
    return nn.Sequential(
        *(convolve(3, 16, 3), nn.ReLU()),
        *(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )


@dataclass(frozen=True)
class Recipe:
    """Network and its training configuration.

    loss: a function of outputs and targets. hits: the number of matches, or None.
    """

    network: type
    optimizer: object = None
    loss: object = F.cross_entropy
    hits: object = None


def adam(parameters):
    """Return Adam with Keras's rate."""
    return torch.optim.Adam(parameters, 1e-3, fused=True)


def rmsprop(parameters):
    """Return RMSprop with Keras's constants."""
    return torch.optim.RMSprop(parameters, 1e-4, alpha=0.9, eps=1e-7)


def momentum(parameters):
    """Return SGD with momentum."""
    return torch.optim.SGD(parameters, 0.1, momentum=0.9, fused=True)


def same_class(y, targets):
    """Return the number of largest logits that are at the targets."""
    return (y.argmax(1) == targets).sum()


def same_sign(y, targets):
    """Return the number of logits with the correct sign."""
    return ((y > 0) == (targets > 0.5)).sum()


def of_tokens(y, targets):
    """Return the loss of logits for each position."""
    return F.cross_entropy(y.flatten(0, 1), targets.flatten())


RECIPES = {
    "cifar_cnn": Recipe(cifar_cnn, rmsprop, hits=same_class),
    "mnist_mlp": Recipe(mnist_mlp, adam, hits=same_class),
    "tiny_mlp": Recipe(tiny_mlp, adam, F.mse_loss),
    "mlp": Recipe(mlp),
    "lstm": Recipe(LSTM, adam, F.binary_cross_entropy_with_logits, same_sign),
    "gpt": Recipe(GPT, adam, of_tokens),
    "resnet": Recipe(resnet, momentum, hits=same_class),
}


def build(recipe):
    """Build the network, channels last for images."""
    return recipe.network().to(memory_format=torch.channels_last)


def inputs(x):
    """Convert a batch for the network: images become channels last without a copy."""
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def tensors(workload):
    """Return the data; one-hot targets become classes, torch's fastest form."""
    x, y = map(torch.from_numpy, workload.make_data())
    one_hot = y.is_floating_point() and y.ndim == 2 and y.shape[1] > 1
    return x, y.argmax(1) if one_hot else y if y.is_floating_point() else y.long()


def epochs(recipe, workload, compiled, is_half=False):
    """Return the training function of an epoch, optionally with bfloat16 `autocast`."""
    model = build(recipe).train()
    optimizer = recipe.optimizer(model.parameters())
    x, y = tensors(workload)

    def forward(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            outputs = model(inputs(x))
            hits = recipe.hits(outputs, y) if recipe.hits else 0
            return recipe.loss(outputs, y), hits

    if compiled:
        forward = torch.compile(forward)

    def epoch():
        total, hits = torch.zeros(()), torch.zeros((), dtype=torch.long)
        for indices in torch.randperm(len(x)).split(workload.batch):
            optimizer.zero_grad()
            loss, outputs = forward(x[indices], y[indices])
            loss.backward()
            optimizer.step()
            total += loss.detach()
            hits += outputs
        assert total.isfinite()
        return int(hits)

    return epoch


def fit(recipe, workload, compiled):
    """Return a sampler of step seconds; the first epoch compiles and warms up."""
    epoch = epochs(recipe, workload, compiled)

    def sample():
        start = perf_counter()
        epoch()
        return (perf_counter() - start) / workload.steps

    sample()
    return sample


def memory(recipe, workload, compiled):
    """Return the peak process memory in bytes after two epochs."""
    epoch = fit(recipe, workload, compiled)

    def sample():
        epoch()
        return peak_memory()

    return sample


def predict(recipe, workload, compiled):
    """Return the seconds from NumPy array to NumPy array, in batches."""
    model = build(recipe).eval()
    forward = torch.compile(model) if compiled else model
    x, _ = workload.make_data()

    @torch.inference_mode()
    def call():
        outputs = []
        for first in range(0, len(x), workload.batch):
            batch = torch.from_numpy(x[first : first + workload.batch])
            outputs.append(F.softmax(forward(inputs(batch)), dim=1))
        return torch.cat(outputs).numpy()

    return repeat_call(call)


def function(recipe, workload, compiled):
    """Return the seconds of a call without gradients."""
    model = build(recipe).eval()
    forward = torch.compile(model) if compiled else model
    x, _ = tensors(workload)
    torch.set_grad_enabled(False)
    return repeat_call(lambda: forward(x))


# Eager `model(x)` is the same call for both kinds.
KINDS = {"fit": fit, "predict": predict, "call": function, "function": function}
KINDS["memory"] = memory


def prepare(network, workload, compiled=False):
    """Return the sampling function of a workload."""
    return KINDS[workload.kind](RECIPES[network], workload, compiled)


def first_step(network, workload):
    """Run the work after the import, up to the first training step."""
    fit(RECIPES[network], workload, False)
