"""Tests of `toolkit.backend`: spellings of dtypes, and the names of the session."""

import numpy as np
import pytest

import toolkit
from toolkit import backend, dtype_policies
from toolkit.core import naming
from toolkit.errors import ArgumentError, DTypeError


@pytest.mark.parametrize(
    "dtype, expected",
    [
        (None, "float32"),
        (bool, "bool"),
        (int, "int32"),
        (float, "float32"),
        ("uint8", "uint8"),
        (np.float64, "float64"),
        (np.dtype("int16"), "int16"),
    ],
)
def test_spellings_of_dtypes(dtype, expected):
    assert backend.standardize_dtype(dtype) == expected
    assert backend.is_float_dtype(dtype) == expected.startswith("float")
    assert backend.is_int_dtype(dtype) == ("int" in expected)


def test_unknown_dtype_is_a_value_error():
    with pytest.raises(DTypeError, match="received 'float31'"):
        backend.standardize_dtype("float31")
    assert issubclass(DTypeError, ValueError)


def test_symbols_differ_from_tensors():
    assert backend.is_keras_tensor(toolkit.Input((2,)))
    assert not backend.is_keras_tensor(toolkit.ops.zeros((2,)))


def test_clear_session_resets_names_and_policies():
    toolkit.utils.clear_session()
    toolkit.layers.Dense(1)
    dtype_policies.set_dtype_policy("mixed_bfloat16")
    assert backend.get_uid("a") == 1
    backend.clear_session(free_memory=False)
    assert toolkit.layers.Dense(1).name == "dense"
    assert dtype_policies.dtype_policy().name == "float32"
    assert backend.get_uid("a") == 1


def test_name_scopes():
    with naming.name_scope("a", caller=1) as scope, naming.name_scope("a", caller=1):
        assert (scope.name, naming.current_path()) == ("a", "a")
        with naming.name_scope("a", caller=1, deduplicate=False):
            assert naming.current_path() == "a/a"
        with naming.name_scope("b", override_parent="/x/y"):
            assert naming.current_path("c") == "x/y/b/c"
    assert naming.current_path() == ""
    for wrong in ("a/b", 4):
        with pytest.raises(ArgumentError, match="must be a string"):
            naming.name_scope(wrong)
