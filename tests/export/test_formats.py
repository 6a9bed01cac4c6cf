"""Test the formats of exports, and the errors for other formats."""

import inspect
import re
from importlib import import_module

import pytest

import toolkit
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.export.formats import EXPORTERS


@pytest.fixture
def model():
    return toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1)])


def test_export_archive():
    with pytest.raises(NotImplementedError, match="Model.save"):
        toolkit.export.ExportArchive()


@pytest.mark.parametrize(
    "path, format, reason",
    [
        ("folder", None, "TensorFlow"),
        ("folder", "tf_saved_model", "TensorFlow"),
        ("m.tflite", None, "LiteRT"),
        ("m.pt2", None, "torch"),
        ("m.onnx", "torch", "torch"),
    ],
)
def test_formats_of_other_frameworks_are_refused(model, path, format, reason, tmp_path):
    with pytest.raises(UnsupportedError, match=f"(?s){reason}.*save"):
        model.export(tmp_path / path, format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "path, format, expected",
    [("m.txt", None, "ends in one of"), ("m.onnx", "onyx", "'onyx'")],
)
def test_unknown_formats_are_refused(model, path, format, expected, tmp_path):
    with pytest.raises(ArgumentError, match=expected):
        model.export(tmp_path / path, format)


@pytest.mark.parametrize("name", EXPORTERS)
def test_the_help_of_export_lists_each_option(name):
    sections = re.split(r"\n *Options of ", toolkit.Model.export.__doc__)[1:]
    listed = "".join(s for s in sections if f'"{name}"' in s.partition(":\n")[0])
    parameters = inspect.signature(import_module(EXPORTERS[name]).export).parameters
    missing = [x for x in list(parameters)[3:] if f"`{x}`" not in listed]
    assert not missing
