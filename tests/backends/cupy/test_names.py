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


def asked():
    """Every chain of attributes of CuPy's, from the module on."""
    tree = ast.parse(inspect.getsource(cuda_device))
    for node in ast.walk(tree):
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        for known, meant in (SHORT | INSTANCES).items():
            if name.startswith(f"{known}."):
                yield f"{meant}.{name[len(known) + 1 :]}".lstrip(".")


def test_cupy_has_every_name():
    cupy, found = pytest.importorskip("cupy"), sorted(set(asked()))
    assert len(found) > 25
    missing = []
    for name in found:
        place = cupy
        for part in name.split("."):
            place = getattr(place, part, None)
        if place is None:
            missing.append(name)
    assert missing == []
