"""Test configs of quantization: their checks and their serialization."""

import json

import pytest

from toolkit import quantizers
from toolkit.quantizers import (
    AbsMaxQuantizer,
    AWQConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    Int4QuantizationConfig,
    Int8QuantizationConfig,
    QuantizationConfig,
)
from toolkit.quantizers.configs import resolve

NARROW = AbsMaxQuantizer(0, (-8, 7))


@pytest.mark.parametrize(
    "config, mode",
    [
        (Int8QuantizationConfig(AbsMaxQuantizer(0)), "int8"),
        (Int8QuantizationConfig(None, None), "int8"),
        (Int4QuantizationConfig(), "int4"),
        (Int4QuantizationConfig(NARROW, block_size=-1), "int4"),
        (Float8QuantizationConfig(), "float8"),
        (GPTQConfig(["text"], len, group_size=64), "gptq"),
        (AWQConfig(["text"], len, num_grid_points=3), "awq"),
    ],
)
def test_round_trip(config, mode):
    plain = quantizers.serialize(config)
    twin = quantizers.deserialize(json.loads(json.dumps(plain)))
    assert (type(twin), twin.mode) == (type(config), mode)
    assert quantizers.serialize(twin) == plain
    direct = type(config).from_config(config.get_config())
    assert direct.get_config() == config.get_config()


@pytest.mark.parametrize(
    "match, make",
    [
        (
            "output_dtype='int8'",
            lambda: Int8QuantizationConfig(AbsMaxQuantizer(output_dtype="int16")),
        ),
        (
            "output_dtype='int8'",
            lambda: Int4QuantizationConfig(
                AbsMaxQuantizer(0, (-8, 7), output_dtype="int16"), block_size=None
            ),
        ),
        (
            "value_range",
            lambda: Int4QuantizationConfig(AbsMaxQuantizer(), block_size=None),
        ),
        (
            "sub-channel quantization.*does not support",
            lambda: Int4QuantizationConfig(NARROW),
        ),
        ("block_size must be", lambda: Int4QuantizationConfig(block_size=0)),
        ("Unsupported weight_bits", lambda: GPTQConfig(None, None, weight_bits=5)),
        ("num_samples must be", lambda: GPTQConfig(None, None, num_samples=0)),
        ("sequence_length must", lambda: AWQConfig(None, None, sequence_length=-1)),
        ("must be between", lambda: GPTQConfig(None, None, hessian_damping=2)),
        ("Invalid group_size", lambda: AWQConfig(None, None, group_size=0)),
        ("only supports 4-bit", lambda: AWQConfig(None, None, weight_bits=8)),
    ],
)
def test_invalid_configs_are_refused(match, make):
    with pytest.raises(ValueError, match=match):
        make()


def test_policies_of_calibrated_configs():
    assert GPTQConfig(None, None, group_size=64).dtype_policy_string() == "gptq/4/64"
    assert AWQConfig(None, None, group_size=-1).dtype_policy_string() == "awq/4/-1"
    assert GPTQConfig(["text"], len).get_config()["dataset"] is None


def test_defaults():
    config = Int8QuantizationConfig()
    assert isinstance(config.activation_quantizer, AbsMaxQuantizer)
    default = QuantizationConfig.weight_quantizer_or_default(config, NARROW)
    assert default is NARROW
    assert QuantizationConfig.activation_quantizer_or_default(None, 1) == 1
    with pytest.raises(NotImplementedError, match="mode"):
        QuantizationConfig().mode  # noqa: B018


def test_resolve():
    assert resolve("int8", None).mode == resolve(None, "int8").mode == "int8"
    config = Int8QuantizationConfig()
    assert resolve(None, config) is resolve("int8", config) is config


@pytest.mark.parametrize(
    "match, mode, config",
    [
        ("Contradictory arguments", "int4", Int8QuantizationConfig()),
        ("Invalid quantization mode", "int9", None),
        ("must pass a `GPTQConfig`", "gptq", None),
        ("AWQConfig", "awq", None),
        ("either `mode` or `config`", None, None),
        ("must be an instance", None, 8),
    ],
)
def test_refused_modes(match, mode, config):
    with pytest.raises(ValueError, match=match):
        resolve(mode, config)
