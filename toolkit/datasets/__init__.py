"""Data sets for first steps: co2 and digits ship with the package, others download."""

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
