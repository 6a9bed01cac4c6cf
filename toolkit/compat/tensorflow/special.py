"""`tf.math.special`, and the special functions of `tf.math`."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError

__path__: list[str] = []  # makes `tf.math.special` importable

_UNARY = (
    *("bessel_j0", "bessel_j1", "bessel_k0", "bessel_k0e", "bessel_k1", "bessel_k1e"),
    *("bessel_y0", "bessel_y1", "dawsn", "expint", "fresnel_cos", "fresnel_sin"),
    *("digamma", "erfcinv", "lgamma", "ndtri", "spence"),
)
globals().update(
    rename_functions(
        {
            **{name: (getattr(ops, name), "x") for name in _UNARY},
            **{
                f"bessel_{n}": (getattr(ops, n), "x")
                for n in ("i0", "i0e", "i1", "i1e")
            },
            "betainc": (ops.betainc, "a b x"),
            "igamma": (ops.igamma, "a x"),
            "igammac": (ops.igammac, "a x"),
            "polygamma": (ops.polygamma, "a x"),
            "zeta": (ops.zeta, "x q"),
        }
    )
)
# Names of `tf.math`; the remaining names are only in `tf.math.special`.
OF_MATH = (
    *("bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "betainc", "digamma"),
    *("erfcinv", "igamma", "igammac", "lbeta", "lgamma", "ndtri", "polygamma", "zeta"),
)


def lbeta(x: Any, name: str | None = None) -> Tensor:
    """Return the logarithm of the multivariate beta function over the last axis.

    Args:
        x: (..., n), positive numbers.

    Raises:
        ArgumentError: x has no axes.
    """
    x = convert(x)
    if not x.ndim:
        raise ArgumentError("lbeta: expected a tensor with axes; received a 0-d one")
    return ops.sum(ops.lgamma(x), -1) - ops.lgamma(ops.sum(x, -1))


make_operations(__name__)
