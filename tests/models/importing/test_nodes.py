"""Each operator computes what ONNX's own tests say."""

import numpy as np
import pytest

import toolkit as tk
from tests.models.importing.cases import (
    SKIPPED,
    array,
    node_cases,
    reason_to_skip,
    with_constants,
)
from toolkit.errors import ToolkitError
from toolkit.models.importing.operators import OPERATORS

PARTS = 4


def outputs_of(path, case):
    """What the model of a case computes, and what it should."""
    inputs, wanted = case.data_sets[0]
    model, kept = with_constants(case.model, inputs)
    path.write_bytes(model.SerializeToString())
    given = [array(inputs[i]) for i in kept]
    found = tk.saving.load_onnx(path)(given if len(given) != 1 else given[0])
    found = found if isinstance(found, list) else [found]
    return [np.asarray(y) for y in found], [array(y) for y in wanted]


def difference(path, case):
    """What is wrong with a case, or None."""
    found, wanted = outputs_of(path, case)
    if [y.dtype for y in found] != [y.dtype for y in wanted]:
        return f"dtypes {[str(y.dtype) for y in found]}"
    if [y.shape for y in found] != [y.shape for y in wanted]:
        return f"shapes {[y.shape for y in found]}"
    for y, right in zip(found, wanted, strict=True):
        y, right = (v if v.dtype == bool else v.astype("float64") for v in (y, right))
        if not np.allclose(y, right, case.rtol, case.atol, equal_nan=True):
            return f"values: {y.reshape(-1)[:5]}, not {right.reshape(-1)[:5]}"
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_nodes(part, tmp_path):
    wrong = {}
    for name, case in list(node_cases().items())[part::PARTS]:
        if reason_to_skip(name) is None:
            try:
                found = difference(tmp_path / "model.onnx", case)
            except ToolkitError as error:
                found = f"{type(error).__name__}: {error}"
            if found is not None:
                wrong[name] = found
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


def test_what_is_skipped_is_there():
    names = list(node_cases())
    reasons = {reason_to_skip(name) for name in names}
    assert reasons == {*SKIPPED.values(), None}
    assert sum(reason_to_skip(name) is None for name in names) > 1_250


def test_every_operator_has_a_case():
    tested = {
        node.op_type
        for name, case in node_cases().items()
        if reason_to_skip(name) is None
        for node in case.model.graph.node
    }
    # These have cases in test_operators.py.
    assert OPERATORS.keys() - tested == {"GlobalLpPool"}
