"""Tests that each architecture, compiled for inference, is only generated code."""

import numpy as np
import pytest

import toolkit
from tests.applications.expected import EXPECTED
from tests.applications.test_applications import build, marked
from tests.layers.test_generated import not_generated
from toolkit.backends import get_backend

pytestmark = pytest.mark.skipif(
    not get_backend("numpy").generator.can_generate,
    reason="needs generated code (llvmlite)",
)
# One of each kind that compiles quickly; the remaining ones are slow tests.
SHORT = {"MobileNetV2", "NASNetMobile", "ResNet50"}


@pytest.mark.parametrize("name", marked(EXPECTED, SHORT))
def test_architecture_is_only_generated_code(name):
    model = build(name)
    images = np.zeros((2, *model.input_shape[1:]), "float32")
    function = toolkit.function(lambda x: model(x, training=False))
    assert not_generated(function.inspect(images).program) == []
