"""Data sets for first steps: digits ships with the package, the others download."""

from toolkit.datasets import cifar10, cifar100, digits, fashion_mnist, mnist

__all__ = ["cifar10", "cifar100", "digits", "fashion_mnist", "mnist"]
