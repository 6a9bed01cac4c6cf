"""Test calls of ops in the configs of functional models."""

import pytest

from toolkit import layers, models, ops


@pytest.mark.parametrize(
    ("op", "module"),
    [
        (ops.exp, "numpy"),
        (ops.softsign, "nn"),
        (lambda x: ops.space_to_depth(x, 2), "nn"),
        (lambda x: ops.unfold(x, 2), "nn"),
        (ops.stop_gradient, "core"),
        (ops.rsqrt, "math"),
        (ops.det, "linalg"),
        (lambda x: ops.rearrange(x, "b h w c -> b w h c"), "einops"),
    ],
)
def test_op_has_the_module_of_keras(op, module):
    x = layers.Input((4, 4, 4))
    (config,) = (
        layer
        for layer in models.Model(x, op(x)).get_config()["layers"]
        if layer["class_name"] != "InputLayer"
    )
    assert config["module"] == f"keras.src.ops.{module}"
