"""Test the estimators without scikit-learn."""

import sys
from importlib import import_module

import pytest


def test_missing_scikit_learn(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "toolkit.wrappers", raising=False)
    with pytest.raises(ImportError, match="requires `scikit-learn`"):
        import_module("toolkit.wrappers").SKLearnRegressor(None)
