"""Tests that CuPy has the attributes that the backend uses, without a GPU."""

import ast
import inspect

import pytest

from toolkit.backends.cupy import cuda_device

# The module of CuPy that a name in the source means.
SHORT = {"self.cupy": "", "cupy": "", "cuda": "cuda", "self.runtime": "cuda.runtime"}
# Instances, and the class that defines their attributes.
INSTANCES = {"self.device": "cuda.Device", "begin": "cuda.Event"}


def dotted(node):
    """The names of `a.b.c`; "" if it is anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return inner and f"{inner}.{node.attr}"


def used_names():
    """Every chain of attributes of CuPy's, from the module on."""
    tree = ast.parse(inspect.getsource(cuda_device))
    for node in ast.walk(tree):
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        for short, path in (SHORT | INSTANCES).items():
            if name.startswith(f"{short}."):
                yield f"{path}.{name[len(short) + 1 :]}".lstrip(".")


def test_cupy_has_every_name():
    cupy, names = pytest.importorskip("cupy"), sorted(set(used_names()))
    assert len(names) > 25
    missing_names = []
    for name in names:
        value = cupy
        for attribute in name.split("."):
            value = getattr(value, attribute, None)
        if value is None:
            missing_names.append(name)
    assert missing_names == []
