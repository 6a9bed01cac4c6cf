"""Handwritten torch networks of gpu_speed.py."""

import torch
from gpu_speed import CLASSES, DEPTH, HEADS, LENGTH, VOCABULARY, WIDTH
from peers_torch import LSTM, Block, cifar_cnn, mnist_mlp
from torch import nn
from torch.nn import functional as F


def convolve(inputs, filters, kernel, stride=1):
    """Return a convolution and batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(filters),
    )


class Bottleneck(nn.Module):
    """Three convolutions with a shortcut."""

    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.one = convolve(inputs, filters, 1, stride)
        self.two = convolve(filters, filters, 3)
        self.three = convolve(filters, 4 * filters, 1)
        same = inputs == 4 * filters and stride == 1
        self.shortcut = (
            nn.Identity() if same else convolve(inputs, 4 * filters, 1, stride)
        )

    def forward(self, x):
        y = self.three(F.relu(self.two(F.relu(self.one(x)))))
        return F.relu(y + self.shortcut(x))


def resnet50():
    """Return Keras's ResNet-50: the stride is in the first convolution of a block."""
    blocks, width = [], 64
    for filters, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            blocks.append(Bottleneck(width, filters, stride if number == 0 else 1))
            width = 4 * filters
    return nn.Sequential(
        *(convolve(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, CLASSES)),
    )


class GPT2(nn.Module):
    """GPT-2 small, without dropout."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block(WIDTH, HEADS) for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions)))


NETWORKS = {
    "cifar_cnn": cifar_cnn,
    "mnist_mlp": mnist_mlp,
    "lstm": LSTM,
    "resnet50": resnet50,
    "gpt2_small": GPT2,
}


def step(case, x, y, half, compiled, device="cuda"):
    """Return a function that trains on one device batch and returns the loss."""
    model = NETWORKS[case]().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    x, y = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2)
    is_binary = case == "lstm"
    y = y if is_binary else y.long().flatten()

    def loss_of(x, y):
        with torch.autocast(device, torch.bfloat16, enabled=half):
            outputs = model(x)
        if is_binary:
            return F.binary_cross_entropy_with_logits(outputs, y)
        return F.cross_entropy(outputs.flatten(0, -2).float(), y)

    run = torch.compile(loss_of, mode="max-autotune") if compiled else loss_of

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = run(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return train
