"""Train ResNet-20 on CIFAR-10, with random shifts and flips of the images.

    python examples/cifar10_resnet20.py --epochs 182
    python examples/cifar10_resnet20.py --data digits --epochs 12

The network and its schedule follow He et al., Deep Residual Learning for Image
Recognition, 2015 (https://arxiv.org/abs/1512.03385, section 4.2), who report 91.25 %
after 182 epochs. CIFAR-10 (170 MB) is downloaded at the first use. The digits are part
of the package and are enlarged to the same shape; the accuracy is about 98 %.
"""

import argparse
from pathlib import Path

import numpy as np

import toolkit
from toolkit import layers, ops, optimizers, regularizers
from toolkit.data import AUTOTUNE, Dataset
from toolkit.datasets import cifar10, digits

BATCH = 128
DECAY = regularizers.L2(1e-4)
MARGIN = 4  # the largest shift, in pixels


def load_data(name):
    """Return (x_train, y_train), (x_test, y_test); uint8 images: (n, 32, 32, 3)."""
    if name == "cifar10":
        return cifar10.load_data()
    return tuple(
        (15 * x[..., None].repeat(4, 1).repeat(4, 2).repeat(3, 3), y)
        for x, y in digits.load_data()
    )


def vary(images, labels, seed, mirror):
    """Shift each image by up to MARGIN pixels; optionally flip half of the images."""
    random = np.random.default_rng(seed)
    count, size = images.shape[:2]
    widths = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0))
    views = np.lib.stride_tricks.sliding_window_view(
        np.pad(images, widths), (size, size), (1, 2)
    )
    y, x = random.integers(0, 2 * MARGIN + 1, (2, count))
    images = np.moveaxis(views[np.arange(count), y, x], 1, -1)
    if mirror:
        is_mirrored = random.random((count, 1, 1, 1)) < 0.5
        images = np.where(is_mirrored, images[:, :, ::-1], images)
    return np.ascontiguousarray(images), labels


def training_data(x, y, seed, mirror):
    """Return batches of augmented images, which another thread prefetches."""
    batches = Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=seed).batch(BATCH)
    seeds = Dataset.random(seed, rerandomize_each_iteration=True)
    return (
        Dataset.zip((batches, seeds))
        .map(lambda batch, seed: vary(*batch, seed, mirror))
        .prefetch(AUTOTUNE)
    )


def convolution(x, filters, strides=1):
    """Apply a 3 x 3 convolution and batch normalization."""
    options = {"padding": "same", "use_bias": False, "kernel_regularizer": DECAY}
    options["kernel_initializer"] = "he_normal"
    x = layers.Conv2D(filters, 3, strides=strides, **options)(x)
    return layers.BatchNormalization(momentum=0.9)(x)


def block(x, filters, strides):
    """Apply a residual block of two convolutions."""
    y = layers.ReLU()(convolution(x, filters, strides))
    y = convolution(y, filters)
    if strides > 1:  # option A of the paper: no weights, new channels are 0
        new = filters - x.shape[-1]
        x = ops.pad(x[:, ::strides, ::strides], [(0, 0), (0, 0), (0, 0), (0, new)])
    return layers.ReLU()(layers.add([x, y]))


def build_model():
    """Return a model from pixels, (batch, 32, 32, 3) in [0, 255], to logits."""
    inputs = toolkit.Input((32, 32, 3))
    x = layers.Rescaling(1 / 64, offset=-2)(inputs)
    x = layers.ReLU()(convolution(x, 16))
    for filters in (16, 32, 64):
        for number in range(3):
            x = block(x, filters, 2 if number == 0 and filters > 16 else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return toolkit.Model(inputs, layers.Dense(10, kernel_regularizer=DECAY)(x))


def main(arguments=None):
    """Train the model, print the test accuracy, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=182, help="default: %(default)s")
    parser.add_argument("--steps", type=int, help="batches per epoch; default: all")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--data", choices=["cifar10", "digits"], default="cifar10")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    (x_train, y_train), (x_test, y_test) = load_data(options.data)
    if options.steps:
        count = options.steps * BATCH
        x_train, y_train = x_train[:count], y_train[:count]
    train = training_data(x_train, y_train, options.seed, options.data == "cifar10")

    model = build_model()
    steps = options.epochs * len(train)
    rate = optimizers.schedules.PiecewiseConstantDecay(
        [steps // 2, steps * 3 // 4], [0.1, 0.01, 0.001]
    )
    model.compile(
        optimizer=optimizers.SGD(rate, momentum=0.9),
        loss=toolkit.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(train, epochs=options.epochs)
    _, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "cifar10_resnet20.keras")
    history.plot(options.output / "cifar10_resnet20.svg")
    print(f"test accuracy {accuracy:.4f} on {options.data}")
    return model


if __name__ == "__main__":
    main()
