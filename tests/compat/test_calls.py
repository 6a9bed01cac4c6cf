"""Tests that functions return TensorFlow's values, shapes and dtypes."""

from pathlib import Path

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from tests.compat import calls, numeric_calls

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODULES = {"tensorflow": calls, "tensorflow_numeric": numeric_calls}
GROUPS = [(name, group) for name, module in MODULES.items() for group in module.CALLS]


@pytest.fixture(scope="module")
def expected():
    """Return TensorFlow's arrays by fixture, group, number and part of a call."""
    return {name: dict(np.load(FIXTURES / f"{name}.npz")) for name in MODULES}


@pytest.mark.parametrize(("fixture", "group"), GROUPS)
def test_results_match_tensorflow(fixture, group, expected):
    module = MODULES[fixture]
    namespace, wrong = module.names(tf), []
    for number, line in enumerate(module.CALLS[group].split("\n")[1:-1]):
        actual, start = calls.flat(eval(line, namespace)), f"{group}.{number}."
        expected_values = [
            v for k, v in expected[fixture].items() if k.startswith(start)
        ]
        if not all(map(is_close, actual, expected_values)) or len(actual) != len(
            expected_values
        ):
            wrong.append(f"{line}: expected {expected_values}; received {actual}"[:500])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("fixture", "group"), GROUPS)
def test_results_are_tensorflow_tensors(fixture, group):
    module = MODULES[fixture]
    namespace = module.names(tf)
    core = type(toolkit.ops.ones(()))
    plain = [
        line
        for line in module.CALLS[group].split("\n")[1:-1]
        if any(type(x) is core for x in toolkit.tree.flatten(eval(line, namespace)))
    ]
    assert not plain


def is_close(actual, expected):
    """Return whether dtype, shape and values are equal, values up to rounding."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype.kind == "S":
        return bool((actual == expected).all())
    return np.allclose(actual, expected, rtol=2e-4, atol=2e-5, equal_nan=True)
