"""The rows of the table of samples."""

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit import ops, tree

_rng = np.random.default_rng(20260)


def uniform(low, high, shape=(3, 4)):
    """Return random numbers, equal in every run."""
    return _rng.uniform(low, high, shape)


def distinct(shape=(3, 4)):
    """Return numbers in random order with distances of at least 0.1: no ties."""
    n = int(np.prod(shape))
    return (_rng.permutation(n) * 0.25 - n * 0.11).reshape(shape)


def integers(low, high, shape=(3, 4)):
    """Return random int32 numbers in [low, high)."""
    return _rng.integers(low, high, shape, dtype=np.int32)


def booleans(shape=(3, 4)):
    """Return random booleans."""
    return _rng.uniform(size=shape) < 0.5


def format_value(x):
    """Return text that is equal in every process: functions by their names."""
    return getattr(x, "__name__", None) or str(x)


@dataclass
class Sample:
    """One call of a public op, and the reference for the same arguments.

    name: the name of the op in `toolkit.ops` or in a namespace: "image.resize".
    inputs: the positional arguments: structures of arrays. The float arrays are
        float64, and the tests cast them.
    attrs: keyword arguments.
    numpy: the reference; by default NumPy's function of the same name, given the same
        arguments.
    dtype: the dtype of the result; None: the dtype of float inputs, int32 or bool.
    tolerance: the factor of the usual tolerance.
    order: the highest derivative that is checked, or 0.
    traced: whether the op can be traced.
    half: whether the result makes sense in half precision.
    """

    name: str
    inputs: list = field(default_factory=list)
    attrs: dict = field(default_factory=dict)
    numpy: Any = None
    dtype: Any = None
    tolerance: float = 1.0
    order: int = 2
    traced: bool = True
    half: bool = True
    label: str = ""

    @property
    def op(self):
        return functools.reduce(getattr, self.name.split("."), ops)

    def __str__(self):
        """Return the name that pytest shows."""
        shapes = ",".join(
            "x".join(map(str, x.shape)) or "0d"
            if isinstance(x, np.ndarray)
            else format_value(x)
            for x in tree.flatten(self.inputs)
        )
        attrs = ",".join(f"{k}={format_value(v)}" for k, v in self.attrs.items())
        return "-".join(filter(None, (self.name, shapes, attrs, self.label)))[:90]

    @property
    def has_floats(self):
        return any(is_float(x) for x in tree.flatten(self.inputs))

    @property
    def size(self):
        return sum(np.size(x) for x in tree.flatten(self.inputs))

    def expected(self, inputs):
        """Return the reference's result for these inputs."""
        function = self.numpy or getattr(np, self.name)
        with np.errstate(all="ignore"):
            return function(*inputs, **({} if self.numpy else self.attrs))

    def call(self, *inputs):
        """Return the op's result."""
        return self.op(*inputs, **self.attrs)


def is_float(x):
    """Return whether x is an array of floats, which tests cast and differentiate."""
    return isinstance(x, np.ndarray) and x.dtype == np.float64


def sample(name, *inputs, numpy=None, dtype=None, tolerance=1.0, order=2, **attrs):
    """Return a Sample; arguments that are no option are attributes of the op."""
    options = {k: attrs.pop(k) for k in ("traced", "half", "label") if k in attrs}
    return Sample(name, list(inputs), attrs, numpy, dtype, tolerance, order, **options)


def unary(name, low=-2.0, high=2.0, **options):
    """Return rows of an elementwise function: a matrix, 0-d, empty, and of extent 1."""
    return [
        sample(name, uniform(low, high, shape), **options)
        for shape in ((3, 4), (), (0, 3), (2, 1, 3))
    ]


PAIRS = (
    ((3, 4), (3, 4)),
    ((), (3,)),
    ((2, 1), (1, 3)),
    ((0, 3), (1,)),
    ((2, 3, 1), (3, 2)),
)


def binary(name, first=(-2.0, 2.0), second=(-2.0, 2.0), **options):
    """Return rows of a function of two tensors that broadcast."""
    return [
        sample(name, uniform(*first, a), uniform(*second, b), **options)
        for a, b in PAIRS
    ]
