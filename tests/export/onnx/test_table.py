"""Every primitive has a row, a reason why not, or a body of others."""

import pytest

import toolkit.compat.tensorflow.minmax
import toolkit.functions
import toolkit.models  # what has primitives of its own is imported
import toolkit.random  # noqa: F401
from toolkit.export.onnx import exporter  # noqa: F401
from toolkit.export.onnx.table import ELEMENTWISE, REFUSED, ROWS
from toolkit.ir import PRIMITIVES, Kind

# Composites that are written as what they consist of: parts of gradients, what only
# training computes, and what no operator is for.
TAKEN_APART = {
    *("attention_grad", "attention_grad_of", "gelu_grad"),
    *("batch_norm", "batch_norm_grad", "batch_norm_grad_of", "batch_norm_of"),
    *("batch_statistics", "matmul_int4", "reread", "variance"),
    *("first_maximum", "first_minimum"),
}


def own(name):
    """Whether a primitive is of this package, and not one that a test declares."""
    record = PRIMITIVES[name]
    return record.spec.__module__.startswith("toolkit.")


def test_each_primitive_is_known():
    known = {*ROWS, *ELEMENTWISE, *REFUSED, *TAKEN_APART}
    assert {name for name in PRIMITIVES if own(name)} == known


@pytest.mark.parametrize("name", sorted(TAKEN_APART))
def test_what_is_taken_apart_has_a_body(name):
    assert PRIMITIVES[name].kind is Kind.COMPOSITE


def test_each_primitive_is_known_once():
    parts = [{*ROWS}, {*ELEMENTWISE}, {*REFUSED}, TAKEN_APART]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_elementwise_rows_are_of_elementwise_primitives():
    whole = {n for n, p in PRIMITIVES.items() if p.kind is Kind.ELEMENTWISE and own(n)}
    # Composites of one input that are computed element by element, too.
    assert {*ELEMENTWISE} - whole == {"gelu", "limit", "softplus"}
    assert whole <= {*ELEMENTWISE}


def test_reasons_are_sentences():
    assert all(len(reason.split()) > 4 for reason in REFUSED.values())
