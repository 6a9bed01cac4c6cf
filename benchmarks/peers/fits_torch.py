"""Handwritten torch networks of `fits.py`: channels last, fused optimizers, logits.

The two applications are from torchvision, adapted to Keras: its ResNet-50 has biases,
and strides in the first convolution of a block; its MobileNetV2 has no dropout.
"""

from time import perf_counter

import torch
import torchvision
from fits_networks import (
    PATCH,
    UNET_FILTERS,
    UNITS,
    VIT_BLOCKS,
    VIT_HEADS,
    VIT_WIDTH,
    VOCABULARY,
)
from peers_torch import Block, Recipe, build, convolve, of_tokens
from torch import nn
from torch.nn import functional as F


def resnet50():
    """Return torchvision's network, adapted to Keras."""
    network = torchvision.models.resnet50()
    for module in network.modules():
        if isinstance(module, torchvision.models.resnet.Bottleneck):
            strides = module.conv2.stride, module.conv1.stride
            module.conv1.stride, module.conv2.stride = strides
        if isinstance(module, nn.Conv2d):
            module.bias = nn.Parameter(torch.zeros(module.out_channels))
    return network


def mobilenet_v2():
    """Return torchvision's network without dropout."""
    return torchvision.models.mobilenet_v2(dropout=0.0)


def convolve_twice(inputs, filters):
    """Return two convolutions with batch norm."""
    return nn.Sequential(
        *(convolve(inputs, filters, 3), nn.ReLU()),
        *(convolve(filters, filters, 3), nn.ReLU()),
    )


class UNet(nn.Module):
    """U-Net with one logit per pixel."""

    def __init__(self):
        super().__init__()
        widths = (3, *UNET_FILTERS, 2 * UNET_FILTERS[-1])
        pairs = list(zip(widths, widths[1:], strict=False))
        self.down = nn.ModuleList(convolve_twice(*pair) for pair in pairs)
        pairs = pairs[:0:-1]
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(convolve_twice(2 * a, a) for a, _ in pairs)
        self.last = nn.Conv2d(UNET_FILTERS[0], 1, 1)

    def forward(self, x):
        skipped = []
        for twice in self.down[:-1]:
            x = twice(x)
            skipped.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[-1](x)
        for enlarge, twice in zip(self.enlarge, self.up, strict=True):
            x = twice(torch.cat([enlarge(x), skipped.pop()], 1))
        return self.last(x).squeeze(1)


class ViT(nn.Module):
    """Vision transformer: patches, blocks, mean pooling."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, VIT_WIDTH, PATCH, PATCH)
        length = (224 // PATCH) ** 2
        self.positions = nn.Parameter(torch.randn(length, VIT_WIDTH) * 0.05)
        blocks = (Block(VIT_WIDTH, VIT_HEADS, causal=False) for _ in range(VIT_BLOCKS))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(VIT_WIDTH)
        self.head = nn.Linear(VIT_WIDTH, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


class Seq2Seq(nn.Module):
    """GRU encoder and GRU decoder."""

    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(VOCABULARY, UNITS) for _ in range(2))
        self.read = nn.GRU(UNITS, UNITS, batch_first=True)
        self.write = nn.GRU(UNITS, UNITS, batch_first=True)
        self.head = nn.Linear(UNITS, VOCABULARY)

    def forward(self, x):
        _, state = self.read(self.embed[0](x[:, 0]))
        written, _ = self.write(self.embed[1](x[:, 1]), state)
        return self.head(written)


def momentum(parameters):
    """Return SGD with momentum."""
    return torch.optim.SGD(parameters, 0.01, momentum=0.9, fused=True)


def adam(rate):
    """Return a function that builds Adam with a learning rate."""
    return lambda parameters: torch.optim.Adam(parameters, rate, eps=1e-7, fused=True)


def of_pixels(y, targets):
    """Return the loss of one logit per pixel."""
    return F.binary_cross_entropy_with_logits(y, targets.squeeze(-1))


RECIPES = {
    "resnet50": Recipe(resnet50, momentum),
    "mobilenet_v2": Recipe(mobilenet_v2, momentum),
    "unet": Recipe(UNet, adam(1e-3), of_pixels),
    "vit_tiny": Recipe(ViT, adam(3e-4)),
    "seq2seq": Recipe(Seq2Seq, adam(1e-3), of_tokens),
}


class Trainer:
    """Handwritten training loop: `epoch` returns seconds and the mean loss."""

    def __init__(self, name, workload, compiled=False):
        recipe = RECIPES[name]
        self.model = build(recipe).train()
        self.optimizer = recipe.optimizer(self.model.parameters())
        x, y = map(torch.from_numpy, workload.make_data())
        self.x = x.permute(0, 3, 1, 2) if x.ndim == 4 else x
        self.y = y if y.is_floating_point() else y.long()
        self.batch = workload.batch

        def forward(x, y):
            return recipe.loss(self.model(x), y)

        self.forward = torch.compile(forward) if compiled else forward

    def parameters(self):
        """Return the number of trained parameters."""
        return sum(p.numel() for p in self.model.parameters())

    def epoch(self):
        """Train on each sample once, in a new order each time."""
        start, losses = perf_counter(), []
        for indices in torch.randperm(len(self.x)).split(self.batch):
            self.optimizer.zero_grad()
            loss = self.forward(self.x[indices], self.y[indices])
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        loss = float(sum(losses)) / len(losses)
        return perf_counter() - start, loss
