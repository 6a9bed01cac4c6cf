"""Free extents: integers that one compilation leaves open.

A shape of a traced graph may contain an `Extent`, an expression of free extents. It has
the value of one example, so Python code computes with it as with an integer. A result
that depends on a comparison is valid only where the comparison has the same result:
the `Domain` records it as a condition. Code that needs an `int` (`range`, `int()`, an
index, a key of a dict) fixes the value with a condition of equality.

So a program with extents is valid for all values for which the conditions of its domain
hold. This is the method of guards of dynamic shapes in tracing compilers.
"""

from toolkit.ir.extents.conversions import fixed_texts, hashable_extents
from toolkit.ir.extents.decisions import (
    are_always,
    at_example,
    describe,
    has_extent,
    is_always,
    largest,
    range_length,
    shape_key,
    share_of,
    smallest,
    upper_bound,
)
from toolkit.ir.extents.domain import ENDED_EXTENT, Domain
from toolkit.ir.extents.expressions import Extent, value_of

__all__ = [
    "ENDED_EXTENT",
    "Domain",
    "Extent",
    "are_always",
    "at_example",
    "describe",
    "fixed_texts",
    "has_extent",
    "hashable_extents",
    "is_always",
    "largest",
    "range_length",
    "shape_key",
    "share_of",
    "smallest",
    "upper_bound",
    "value_of",
]
