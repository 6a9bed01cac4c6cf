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
    for policy_found in (
        dtype_policies.get(json.loads(json.dumps(dtype_policies.serialize(policy)))),
        DTypePolicy.from_config(policy.get_config()),
        dtype_policies.get(policy.get_config()),
        dtype_policies.get(policy),
    ):
        assert policy_found == policy and hash(policy_found) == hash(policy)


def test_bad_names():
    with pytest.raises(ArgumentError, match="mixed_float16.*received 'mixed_int8'"):
        DTypePolicy("mixed_int8")
    with pytest.raises(DTypeError, match="must be a string.*received 3"):
        DTypePolicy(3)
    with pytest.raises(ArgumentError, match="'name'"):
        dtype_policies.deserialize({"class_name": "DTypePolicy"})


def test_float_policies_are_policies():
    policy = dtype_policies.FloatDTypePolicy("mixed_float16")
    assert policy == DTypePolicy("mixed_float16")
    assert repr(policy) == '<DTypePolicy "mixed_float16">'


@pytest.mark.parametrize(
    "name",
    [
        *("int8_from_float32", "float8_from_mixed_bfloat16", "int4/128_from_float32"),
        *("gptq/4/128_from_float32", "awq/4/-1_from_bfloat16"),
    ],
)
def test_layers_refuse_quantized_policies(name):
    policy = dtype_policies.get(name)
    config = json.loads(json.dumps(dtype_policies.serialize(policy)))
    assert dtype_policies.deserialize(config) == policy and policy.name == name
    assert policy != DTypePolicy("float32")
    with pytest.raises(ArgumentError, match="quantization of weights"):
        layers.Conv1D(1, 1, dtype=policy)


@pytest.mark.parametrize(
    "name", ["int8_from_float16", "int8_abc_", "gptq/5/2_from_float32", "awq/4_from_x"]
)
def test_bad_quantized_policies(name):
    with pytest.raises(ArgumentError):
        dtype_policies.get(name)


def test_policies_by_path():
    policies = dtype_policies.DTypePolicyMap(DTypePolicy("float32"))
    policies["model/.*"] = "mixed_bfloat16"
    policies["model/dense"] = DTypePolicy("float64")
    assert policies["model/dense"].name == "float64"
    assert policies["model/other"].compute_dtype == "bfloat16"
    assert policies["head"].name == policies.default_policy.name == "float32"
    config = json.loads(json.dumps(dtype_policies.serialize(policies)))
    assert dtype_policies.deserialize(config) == policies
    policies["model/d.*"] = "float16"
    with pytest.raises(ArgumentError, match="matches multiple"):
        policies["model/dropout"]
    with pytest.raises(ArgumentError, match="already exist"):
        policies["model/dense"] = "float32"
    del policies["model/d.*"]
    assert len(policies) == 2 and "model/.*" in policies
    layer = layers.Dense(1, dtype=dtype_policies.DTypePolicyMap(None, {"d": policy()}))
    assert layer.compute_dtype == "float32"


def policy():
    return DTypePolicy("float16")


def test_layer_uses_the_policy_of_its_path():
    policies = dtype_policies.DTypePolicyMap(policy_map={"head": policy()})
    layer = layers.Dense(1, dtype=policies, name="head")
    layer.build((None, 2))
    assert layer.kernel.dtype == "float16"
