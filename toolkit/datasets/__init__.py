"""Small data sets: co2 and digits are part of the package, the other loaders
download."""

from toolkit.datasets import (
    boston_housing,
    california_housing,
    cifar10,
    cifar100,
    co2,
    digits,
    fashion_mnist,
    imdb,
    mnist,
    reuters,
)

__all__ = [
    "boston_housing",
    "california_housing",
    "cifar10",
    "cifar100",
    "co2",
    "digits",
    "fashion_mnist",
    "imdb",
    "mnist",
    "reuters",
]
