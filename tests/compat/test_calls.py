"""Functions return what TensorFlow's return: values, shapes and dtypes."""

from pathlib import Path

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from tests.compat.calls import CALLS, flat, names

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tensorflow.npz"


@pytest.fixture(scope="module")
def expected():
    """Group, number and part of a call -> the array that TensorFlow returned."""
    with np.load(FIXTURE) as file:
        return dict(file)


@pytest.mark.parametrize("group", CALLS)
def test_results_are_tensorflows(group, expected):
    known, wrong = names(tf), []
    for number, line in enumerate(CALLS[group].split("\n")[1:-1]):
        found = flat(eval(line, known))
        wanted = [v for k, v in expected.items() if k.startswith(f"{group}.{number}.")]
        if not all(map(same, found, wanted)) or len(found) != len(wanted):
            wrong.append(f"{line}: expected {wanted}; received {found}"[:500])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("group", CALLS)
def test_no_result_is_the_cores_own_tensor(group):
    known = names(tf)
    core = type(toolkit.ops.ones(()))
    plain = [
        line
        for line in CALLS[group].split("\n")[1:-1]
        if any(type(x) is core for x in toolkit.tree.flatten(eval(line, known)))
    ]
    assert not plain


def same(found, wanted):
    """Whether dtype, shape and values are the same, values up to rounding."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind == "S":
        return bool((found == wanted).all())
    return np.allclose(found, wanted, rtol=2e-4, atol=2e-5, equal_nan=True)
