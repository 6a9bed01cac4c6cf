"""Tests of the public names that editors and type checkers see without running code."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest

import toolkit

ROOT = Path(toolkit.__file__).resolve().parents[1]
NAMESPACES = [*toolkit._MODULES, "ops.image", "ops.nn", "ops.numpy"]


# Names that a namespace re-exports from other namespaces, as Keras does.
FROM_OTHERS = {"activations": "toolkit.ops", "metrics": "toolkit.losses"}
# The decorator of tensor functions belongs to no namespace.
INTERNAL = {"operation"}


def public(namespace: str) -> list[str]:
    """Return the names that a namespace exports."""
    module = import_module(f"toolkit.{namespace}")
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    homes = (f"toolkit.{namespace}", FROM_OTHERS.get(namespace, module.__name__))
    return [
        name
        for name, value in inspect.getmembers(module)
        if not name.startswith("_") and not inspect.ismodule(value)
        if name not in INTERNAL
        if (getattr(value, "__module__", None) or "").startswith(homes)
    ]


def test_stubs_are_up_to_date():
    for path, text in run_path(str(ROOT / "scripts" / "write_stubs"))[
        "stubs"
    ]().items():
        assert path.read_text("utf-8") == text, f"{path.name}: run scripts/write_stubs"


@pytest.mark.parametrize("namespace", ["", *NAMESPACES])
def test_public_names_have_signatures(namespace):
    module = import_module(f"toolkit.{namespace}".rstrip("."))
    for name in toolkit.__all__ if not namespace else public(namespace):
        value = getattr(module, name)
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if callable(value) and not is_error:
            inspect.signature(value)


def test_type_checkers_find_public_names(tmp_path):
    lines = ["import toolkit", *(f"toolkit.{name}" for name in toolkit.__all__)]
    for namespace in NAMESPACES:
        lines += [f"import toolkit.{namespace}"]
        lines += [f"toolkit.{namespace}.{name}" for name in public(namespace)]
    lines += ["toolkit.Sequential([toolkit.layers.Dense(1)]).fit(epochs=2)"]
    lines += ["toolkit.data.Dataset.range(3).batch(2).map(abs)"]
    file = tmp_path / "names.py"
    file.write_text("\n".join([*lines, ""]), "utf-8")
    command = [sys.executable, "-m", "mypy", "--no-implicit-reexport"]
    command += ["--follow-imports=silent", str(file)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
    assert len(lines) > 1000
