"""Make Keras find this backend: Keras 3.12 to 3.16 refuse names that they do not know.

An import finder adds a branch for the name "toolkit" to the modules of Keras that choose
by the name of the backend. The files of Keras on disk do not change.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType

NAME = "toolkit"

_REFUSAL = """else:
    raise RuntimeError(
        f"Backend '{backend.backend()}' must implement """

# For each module of Keras: a text that it contains once, and the text that replaces it.
PATCHES: dict[str, tuple[str, str]] = {
    "keras.src.backend": (
        'else:\n    raise ValueError(f"Unable to import backend : {backend()}")',
        'elif backend() == "toolkit":\n'
        "    from keras_toolkit.backend import *\n"
        "    from keras_toolkit.core import Variable as BackendVariable\n"
        'else:\n    raise ValueError(f"Unable to import backend : {backend()}")',
    ),
    "keras.src.models.model": (
        f"{_REFUSAL}the Trainer class.",
        'elif backend.backend() == "toolkit":\n'
        "    from keras_toolkit.trainer import ToolkitTrainer as Trainer\n"
        f"{_REFUSAL}the Trainer class.",
    ),
    "keras.src.layers.layer": (
        f"{_REFUSAL}a layer mixin class.",
        'elif backend.backend() == "toolkit":\n'
        "    from keras_toolkit.layer import ToolkitLayer as BackendLayer\n"
        f"{_REFUSAL}a layer mixin class.",
    ),
    "keras.src.export.saved_model": (
        f"{_REFUSAL}ExportArchive.",
        'elif backend.backend() == "toolkit":\n'
        "    from keras_toolkit.export import (\n"
        "        ToolkitExportArchive as BackendSavedModelExportArchive,\n"
        "    )\n"
        f"{_REFUSAL}ExportArchive.",
    ),
    "keras.src.optimizers.optimizer": (
        "else:\n\n    class BackendOptimizer(base_optimizer.BaseOptimizer):",
        'elif backend.backend() == "toolkit":\n'
        "    from keras_toolkit.optimizer import (\n"
        "        ToolkitOptimizer as BackendOptimizer,\n"
        "    )\n"
        "else:\n\n    class BackendOptimizer(base_optimizer.BaseOptimizer):",
    ),
    "keras.src.utils.backend_utils": (
        '        if self._backend == "openvino":',
        '        if self._backend == "toolkit":\n'
        '            module = importlib.import_module("keras_toolkit.backend")\n'
        "            return getattr(module, name)\n"
        '        if self._backend == "openvino":',
    ),
}


def activate() -> None:
    """Choose this backend for the Keras that is imported next.

    Raises:
        RuntimeError: if Keras is imported already, with another backend.
    """
    imported = sys.modules.get("keras.src.backend.config")
    if imported is not None and imported.backend() != NAME:
        raise RuntimeError(
            f"keras_toolkit: Keras is already imported with the backend "
            f"{imported.backend()!r}; import keras_toolkit before keras"
        )
    os.environ["KERAS_BACKEND"] = NAME
    add_finder()


def add_finder() -> None:
    """Add the import finder, unless it is there."""
    if not any(isinstance(finder, KerasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, KerasFinder())


class KerasFinder(MetaPathFinder):
    """Find the modules of Keras that need a branch for this backend."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in PATCHES or os.environ.get("KERAS_BACKEND") != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(
            spec.loader, importlib.machinery.SourceFileLoader
        ):
            return spec
        spec.loader = _BranchLoader(spec.loader.name, spec.loader.path)
        return spec


class _BranchLoader(importlib.machinery.SourceFileLoader):
    """Load a module of Keras with the branch for this backend."""

    def get_code(self, fullname: str) -> CodeType:  # type: ignore[override]
        source = self.get_source(fullname) or ""
        module = ast.parse(add_branch(fullname, source), self.path)
        _restore_line_numbers(fullname, source, module)
        return compile(module, self.path, "exec")


def add_branch(name: str, source: str) -> str:
    """Return the source of a module of Keras with the branch for this backend.

    Args:
        name: of the module.
        source: its text.

    Raises:
        ImportError: if the text is not that of a version that this package knows.
    """
    old, new = PATCHES[name]
    if source.count(old) == 1:
        return source.replace(old, new)
    raise ImportError(
        f"keras_toolkit: this version of Keras is unknown: {name} does not contain "
        f"{old.splitlines()[-1].strip()!r} once. Known versions are 3.12 to 3.16; install "
        "one of them, or a newer version of toolkit"
    )


def _restore_line_numbers(name: str, source: str, module: ast.Module) -> None:
    """Give the code after the branch the line numbers of the file, for tracebacks."""
    old, new = PATCHES[name]
    first = source[: source.index(old)].count("\n") + 1
    added = new.count("\n") - old.count("\n")
    for node in ast.walk(module):
        if getattr(node, "lineno", 0) >= first + added:
            node.lineno -= added  # type: ignore[attr-defined]
        if (getattr(node, "end_lineno", 0) or 0) >= first + added:
            node.end_lineno -= added  # type: ignore[attr-defined]
