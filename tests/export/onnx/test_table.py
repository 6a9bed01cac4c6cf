"""Test that every primitive has a row, a reason for its absence, or a body."""

import pytest

# Modules with primitives that are imported when they are needed.
import toolkit.compat.tensorflow.minmax
import toolkit.control_flow.recurrent
import toolkit.functions
import toolkit.models
import toolkit.ops.leaf_sums
import toolkit.random  # noqa: F401
from toolkit.export.onnx import exporter  # noqa: F401
from toolkit.export.onnx.table import ELEMENTWISE, RULES, UNSUPPORTED
from toolkit.ir import PRIMITIVES, Kind

# Composites that are exported by their body: parts of gradients, operations of
# training, and operations without an operator.
TAKEN_APART = {
    *("attention_grad", "attention_grad_of", "gelu_grad"),
    *("sinc", "sinc_grad"),
    *("batch_norm", "batch_norm_grad", "batch_norm_grad_of", "batch_norm_of"),
    *("batch_statistics", "matmul_int4", "reread", "variance"),
    *("first_maximum", "first_minimum", "exchange_rows"),
    *("gather_in_shard", "add_in_shard", "set_in_shard"),
    *("leaf_terms", "sum_leaves", "sort"),
    *("i0e", "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"),
    *("bessel_k0", "bessel_k1", "bessel_k0e", "bessel_k1e", "erfcinv", "ndtri"),
    *("igamma_integral", "igammac_integral", "igamma_ratio", "igammac_ratio"),
    *("igamma", "igammac", "betainc_integral", "polygamma", "zeta"),
    *("dawsn", "expint", "fresnel_cos", "fresnel_sin", "spence"),
    *("erfc", "i0", "lgamma", "digamma", "trigamma"),
    *("small_det", "least_squares", "singular_values"),
}


def is_own_primitive(name):
    """Return whether a primitive belongs to this package, and not to a test."""
    record = PRIMITIVES[name]
    return record.spec.__module__.startswith("toolkit.")


def test_every_primitive_has_an_entry():
    entries = {*RULES, *ELEMENTWISE, *UNSUPPORTED, *TAKEN_APART}
    assert {name for name in PRIMITIVES if is_own_primitive(name)} == entries


@pytest.mark.parametrize("name", sorted(TAKEN_APART))
def test_expanded_composites_have_a_body(name):
    assert PRIMITIVES[name].kind is Kind.COMPOSITE


def test_every_primitive_has_one_entry():
    tables = [{*RULES}, {*ELEMENTWISE}, {*UNSUPPORTED}, TAKEN_APART]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_elementwise_rows_have_elementwise_primitives():
    elementwise = {
        n
        for n, p in PRIMITIVES.items()
        if p.kind is Kind.ELEMENTWISE and is_own_primitive(n)
    }
    # Composites of one input that are elementwise, too.
    assert {*ELEMENTWISE} - elementwise == {"gelu", "limit", "softplus"}
    # ONNX has no operation on bits.
    assert elementwise - {*ELEMENTWISE} == {"reinterpret"}


def test_reasons_are_sentences():
    assert all(len(reason.split()) > 4 for reason in UNSUPPORTED.values())
