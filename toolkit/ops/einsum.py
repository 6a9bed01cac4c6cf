"""einsum: sums of products over named axes, as a sequence of matrix products."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

from toolkit.core.convert import convert, operands, weak_type
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.arrange import diagonal
from toolkit.ops.contract import multiply_matrices
from toolkit.ops.reduce import sum_p
from toolkit.ops.shape import broadcast_to, expand_dims, reshape, transpose
from toolkit.ops.symbolic import operation

Labels = list[str]
Term = tuple[Tensor, Labels]  # a tensor, with a label for each axis


@operation
def einsum(subscripts: str, *operands: Any) -> Tensor:
    """Sum products of tensors over named axes, in Einstein notation.

    Args:
        subscripts: one letter per axis, commas between the operands, and "->" before
            the axes of the result, as in "bij,bjk->bik". A letter that the result lacks
            is summed over. A letter that an operand repeats selects the diagonal. "..."
            means axes that broadcast. Without "->", the result has the letters that
            occur once, in alphabetical order.
        operands: one tensor for each term of the subscripts.

    Returns:
        A tensor of the common dtype of the operands; int32 if all of them are int8.

    Raises:
        ArgumentError: the subscripts contradict the operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.einsum("ij,jk->ik", [[1, 2], [3, 4]], [[1], [1]]))
        [[3]
         [7]]
        >>> print(ops.einsum("ii->", [[1, 2], [3, 4]]))
        5
    """
    tensors = _promoted(operands)
    inputs, output = _parse(subscripts, tensors)
    terms = [
        _diagonals(subscripts, x, labels)
        for x, labels in zip(tensors, inputs, strict=True)
    ]
    extents = _extents(subscripts, terms)
    if unknown := [label for label in output if label not in extents]:
        raise ArgumentError(
            f"einsum: {unknown[0]!r} of the result of {subscripts!r} is in no operand"
        )
    terms = [_without_broadcast(x, labels, extents) for x, labels in terms]
    while len(terms) > 1:
        (a, b), remaining = terms[:2], terms[2:]
        retained = set(output).union(*(labels for _, labels in remaining))
        terms = [_contract(a, b, retained), *remaining]
    x, labels = terms[0]
    x, labels = _summed(_widened(x), labels, set(output))
    result = _ordered(x, labels, output, extents)
    if tensors[0].dtype == "int8" and any(weak_type(y) != "int8" for y in operands):
        return convert(result, "int8")  # int8 times bool stays int8
    return result


def _promoted(xs: Sequence[Any]) -> list[Tensor]:
    if not xs:
        raise ArgumentError("einsum: expected at least one operand")
    tensors, dtype = operands(*xs)
    return [convert(x, dtype) for x in tensors]


def _widened(x: Tensor) -> Tensor:
    """Convert int8 to int32, which can hold sums and products."""
    return convert(x, "int32") if x.dtype == "int8" else x


def _parse(subscripts: str, tensors: list[Tensor]) -> tuple[list[Labels], Labels]:
    """Return the labels of operands and result; "..." becomes "0", "1", ...

    The last axis of "..." has the label "0".
    """
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    subscript_terms = left.split(",")
    if len(subscript_terms) != len(tensors):
        raise ArgumentError(
            f"einsum: {subscripts!r} names {len(subscript_terms)} operands; "
            f"received {len(tensors)}"
        )
    inputs = [
        _labels(subscripts, term, x.ndim)
        for term, x in zip(subscript_terms, tensors, strict=True)
    ]
    broadcast = max((_count_free(labels) for labels in inputs), default=0)
    if arrow:
        letters = len(right.replace("...", ""))
        free = broadcast if "..." in right else 0
        return inputs, _labels(subscripts, right, letters + free)
    every = [label for labels in inputs for label in labels if label.isalpha()]
    unique_labels = sorted(label for label in set(every) if every.count(label) == 1)
    return inputs, [*(str(i) for i in reversed(range(broadcast))), *unique_labels]


def _count_free(labels: Labels) -> int:
    return len([label for label in labels if not label.isalpha()])


def _labels(subscripts: str, term: str, ndim: int) -> Labels:
    before, dots, after = term.partition("...")
    letters = before + after
    wrong = next((c for c in letters if c not in string.ascii_letters), None)
    if wrong is not None:
        raise ArgumentError(f"einsum: {wrong!r} in {subscripts!r} is not a letter")
    free = ndim - len(letters)
    if free < 0 or (free and not dots):
        raise ShapeError(
            f"einsum: {term!r} of {subscripts!r} names {len(letters)} axes; the "
            f"operand has {ndim}"
        )
    return [*before, *(str(i) for i in reversed(range(free))), *after]


def _diagonals(subscripts: str, x: Tensor, labels: Labels) -> Term:
    """Replace the axes of a repeated label by the diagonal of x."""
    while repeated := next((c for c in labels if labels.count(c) > 1), None):
        first = labels.index(repeated)
        second = labels.index(repeated, first + 1)
        if x.shape[first] != x.shape[second]:
            raise ShapeError(
                f"einsum: in {subscripts!r}, the extents {x.shape[first]} and "
                f"{x.shape[second]} of {repeated!r} differ"
            )
        x = diagonal(x, axis1=first, axis2=second)
        remaining = [c for i, c in enumerate(labels) if i not in (first, second)]
        labels = [*remaining, repeated]
    return x, labels


def _extents(subscripts: str, terms: list[Term]) -> dict[str, int]:
    """Return the extent of each label; an extent of 1 broadcasts to any other."""
    extents: dict[str, int] = {}
    for x, labels in terms:
        for label, n in zip(labels, x.shape, strict=True):
            extent = extents.get(label, 1)
            if n != extent and n != 1 and extent != 1:
                raise ShapeError(
                    f"einsum: in {subscripts!r}, the extents {extent} and {n} of "
                    f"{label!r} differ"
                )
            extents[label] = extent if n == 1 else n
    return extents


def _without_broadcast(x: Tensor, labels: Labels, extents: dict[str, int]) -> Term:
    """Return x without the axes of extent 1 that broadcast."""
    axes = [i for i, label in enumerate(labels) if x.shape[i] == extents[label]]
    return reshape(x, [x.shape[i] for i in axes]), [labels[i] for i in axes]


def _summed(x: Tensor, labels: Labels, retained: set[str]) -> Term:
    """Sum x over the labels that are not needed any more."""
    axes = tuple(i for i, label in enumerate(labels) if label not in retained)
    if not axes:
        return x, labels
    x = _widened(x)
    return bind(sum_p, x, axis=axes, keepdims=False), [
        c for c in labels if c in retained
    ]


def _contract(left: Term, right: Term, retained: set[str]) -> Term:
    """Return the product of two terms, summed over common labels not in `kept`."""
    a, a_labels = _summed(*left, retained.union(right[1]))
    b, b_labels = _summed(*right, retained.union(left[1]))
    common = [c for c in a_labels if c in b_labels]
    batch = [c for c in common if c in retained]
    depth = [c for c in common if c not in retained]
    rows = [c for c in a_labels if c not in common]
    columns = [c for c in b_labels if c not in common]
    sizes = dict(zip(b_labels, b.shape, strict=True))
    sizes |= dict(zip(a_labels, a.shape, strict=True))

    def arranged(x: Tensor, labels: Labels, *groups: Labels) -> Tensor:
        """Return x as a stack of matrices, with the axes of two groups merged."""
        order = [*batch, *(label for group in groups for label in group)]
        shape = [sizes[c] for c in batch]
        shape += [math.prod(sizes[c] for c in group) for group in groups]
        return reshape(_transposed(x, labels, order), shape)

    is_product = bool(depth) and bool(rows or columns or not batch)
    if not is_product or a.dtype != b.dtype:
        a, b = _widened(a), _widened(b)
    if not depth:  # no sum: each row times each column
        product = arranged(a, a_labels, rows, []) * arranged(b, b_labels, [], columns)
    elif not is_product:  # many short dot products
        product = arranged(a, a_labels, depth) * arranged(b, b_labels, depth)
        product = bind(sum_p, product, axis=(product.ndim - 1,), keepdims=False)
    else:
        first = arranged(a, a_labels, rows, depth)
        product = multiply_matrices(first, arranged(b, b_labels, depth, columns))
    labels = batch + rows + columns
    return reshape(product, [sizes[c] for c in labels]), labels


def _transposed(x: Tensor, labels: Labels, order: Labels) -> Tensor:
    return x if labels == order else transpose(x, [labels.index(c) for c in order])


def _ordered(
    x: Tensor, labels: Labels, output: Labels, extents: dict[str, int]
) -> Tensor:
    """Return x with its axes in the order of `output`."""
    x = _transposed(x, labels, [label for label in output if label in labels])
    for axis, label in enumerate(output):
        if label not in labels:  # its extent was 1 in every other operand
            x = expand_dims(x, axis)
    return broadcast_to(x, [extents[label] for label in output])
