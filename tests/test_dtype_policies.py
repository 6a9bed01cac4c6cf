import json

import pytest

from toolkit import config, dtype_policies, layers
from toolkit.dtype_policies import DTypePolicy
from toolkit.errors import ArgumentError, DTypeError


@pytest.fixture(autouse=True)
def default_policy():
    yield
    dtype_policies.set_dtype_policy(None)


@pytest.mark.parametrize(
    ("name", "compute", "variable"),
    [
        ("float32", "float32", "float32"),
        ("float16", "float16", "float16"),
        ("mixed_float16", "float16", "float32"),
        ("mixed_bfloat16", "bfloat16", "float32"),
        ("int8", "int8", "int8"),
    ],
)
def test_names(name, compute, variable):
    policy = DTypePolicy(name)
    assert (policy.compute_dtype, policy.variable_dtype) == (compute, variable)
    assert (
        policy == dtype_policies.get(name) and repr(policy) == f'<DTypePolicy "{name}">'
    )


def test_the_default_is_floatx_until_set():
    assert config.dtype_policy() == DTypePolicy("float32")
    config.set_floatx("float64")
    try:
        assert layers.Dense(1).dtype == "float64"
    finally:
        config.set_floatx("float32")
    config.set_dtype_policy("mixed_float16")
    assert layers.Dense(1).dtype_policy == DTypePolicy("mixed_float16")
    assert DTypePolicy().name == "mixed_float16"
    assert layers.Dense(1, dtype="float32").compute_dtype == "float32"


def test_round_trip():
    policy = DTypePolicy("mixed_bfloat16")
    for found in (
        dtype_policies.get(json.loads(json.dumps(dtype_policies.serialize(policy)))),
        DTypePolicy.from_config(policy.get_config()),
        dtype_policies.get(policy.get_config()),
        dtype_policies.get(policy),
    ):
        assert found == policy and hash(found) == hash(policy)


def test_bad_names():
    with pytest.raises(ArgumentError, match="mixed_float16.*received 'mixed_int8'"):
        DTypePolicy("mixed_int8")
    with pytest.raises(DTypeError, match="expected a name.*received 3"):
        DTypePolicy(3)
    with pytest.raises(ArgumentError, match="'name'"):
        dtype_policies.deserialize({"class_name": "DTypePolicy"})
