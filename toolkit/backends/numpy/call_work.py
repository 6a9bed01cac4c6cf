"""The work of an eager call by its primitive, which selects NumPy or generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

# Elements from which generated code runs for primitives that cost few additions.
MIN_ELEMENTS = 1 << 16
# A multiplication of elements of 16 bits as multiplications of wider ones.
_NARROW_WORK = 1 << 8
# The call for one matrix of a stack as multiplications.
_MATRIX_WORK = 1 << 12


def largest_size(*arrays: Any) -> int:
    """Return the size of the largest operand."""
    size: int = max(x.size for x in arrays)
    return size


def _count_multiplications(first: Any, second: Any, **attrs: object) -> int:
    """Return the multiplications of a product: elements times columns or filters.

    Those of elements of 16 bits count more: NumPy copies them to float32. Each matrix
    of a stack counts, too: NumPy calls BLAS for it.
    """
    size: int = first.size * second.shape[-1]
    if second.ndim > 2 and "strides" not in attrs:
        size += _MATRIX_WORK * prod(second.shape[:-2])
    return _NARROW_WORK * size if first.nbytes == 2 * first.size else size


def _gathered_size(x: Any, indices: Any, *, axis: int, shifted: bool = False) -> int:
    """Return the number of gathered elements."""
    size: int = indices.size * (x.size // max(1, x.shape[axis]))
    return size


def _transform_size(
    first: Any, *operands: object, axis: int = -1, length: int = 0, **attrs: object
) -> int:
    """Return the size of an operand if code for its length is likely to be reused.

    Code is specific to a length. The lengths of whole signals vary without limit, so
    only powers of two count.
    """
    n = length or first.shape[axis]
    return first.size if n & (n - 1) == 0 else 0


def _drawn_size(key: Any, *, shape: Sequence[int], **attrs: object) -> int:
    """Return the number of drawn elements."""
    return prod(shape)


def _stack_size(x: Any, *operands: Any, **attrs: object) -> int:
    """Return the elements of the operands: LAPACK is fast for a single system."""
    has_stack = x.ndim > 2 or attrs.get("lower") is not None
    return largest_size(x, *operands) if has_stack else 0


# The work of a call by primitive, and the work from which generated code runs. NumPy
# computes matrix products with BLAS, and copies windows before it reduces them.
WORK_BY_NAME: dict[str, tuple[Callable[..., int], int]] = {
    "matmul": (_count_multiplications, 1 << 21),
    "conv": (_count_multiplications, 1 << 16),
    "conv_input_grad": (_count_multiplications, 1 << 16),
    "conv_kernel_grad": (_count_multiplications, 1 << 16),
    "dft": (_transform_size, 1 << 14),
    "rdft": (_transform_size, 1 << 14),
    "irdft": (_transform_size, 1 << 13),
    "gather": (_gathered_size, MIN_ELEMENTS),
    "random_uniform": (_drawn_size, MIN_ELEMENTS),
    **dict.fromkeys(
        ("solve", "solve_triangular", "slogdet", "cholesky", "qr"),
        (_stack_size, 1 << 9),
    ),
}
