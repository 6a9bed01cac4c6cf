"""Make Keras find this backend: Keras 3.12 to 3.15 refuse the names of new backends.

An import finder adds a branch for the name "toolkit" to the modules of Keras that
choose by the name of the backend. The files of Keras on disk do not change.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType

from keras_toolkit.libraries import BRANCHES, before

NAME = "toolkit"


def _after(text: str, addition: str) -> tuple[str, str]:
    return text, text + addition


_REFUSAL = """else:
    raise RuntimeError(
        f"Backend '{backend.backend()}' must implement """

# For each module of Keras: pairs of a text that it contains once, and its replacement.
PATCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "keras.src.backend": (
        before(
            'else:\n    raise ValueError(f"Unable to import backend : {backend()}")',
            'elif backend() == "toolkit":\n'
            "    from keras_toolkit.backend import *\n"
            "    from keras_toolkit.core import Variable as BackendVariable\n",
        ),
    ),
    # toolkit computes with the settings of Keras.
    "keras.src.backend.config": tuple(
        _after(
            f"    _{name.upper()} = {value}\n",
            "    import toolkit.config\n\n"
            f"    toolkit.config.set_{name}(_{name.upper()})\n",
        )
        for name, value in (
            ("floatx", "str(value)"),
            ("epsilon", "value"),
            ("image_data_format", "data_format"),
        )
    ),
    "keras.src.models.model": (
        before(
            f"{_REFUSAL}the Trainer class.",
            'elif backend.backend() == "toolkit":\n'
            "    from keras_toolkit.trainer import ToolkitTrainer as Trainer\n",
        ),
    ),
    "keras.src.layers.layer": (
        before(
            f"{_REFUSAL}a layer mixin class.",
            'elif backend.backend() == "toolkit":\n'
            "    from keras_toolkit.layer import ToolkitLayer as BackendLayer\n",
        ),
    ),
    "keras.src.optimizers.optimizer": (
        before(
            "else:\n\n    class BackendOptimizer(base_optimizer.BaseOptimizer):",
            'elif backend.backend() == "toolkit":\n'
            "    from keras_toolkit.optimizer import (\n"
            "        ToolkitOptimizer as BackendOptimizer,\n"
            "    )\n",
        ),
    ),
    "keras.src.export.saved_model": (
        before(
            f"{_REFUSAL}ExportArchive.",
            'elif backend.backend() == "toolkit":\n'
            "    from keras_toolkit.export import (\n"
            "        ToolkitExportArchive as BackendSavedModelExportArchive,\n"
            "    )\n"
            "    # The name in Keras 3.12 to 3.14.\n"
            "    BackendExportArchive = BackendSavedModelExportArchive\n",
        ),
    ),
    "keras.src.export.onnx": (
        before(
            '    elif backend.backend() == "torch":\n        import torch\n',
            '    elif backend.backend() == "toolkit":\n'
            "        from keras_toolkit.export import write_onnx\n\n"
            "        write_onnx(\n"
            "            model, filepath, input_signature, opset_version, **kwargs\n"
            "        )\n\n",
        ),
    ),
    "keras.src.utils.backend_utils": (
        before(
            '        if self._backend == "openvino":',
            '        if self._backend == "toolkit":\n'
            '            module = importlib.import_module("keras_toolkit.backend")\n'
            "            return getattr(module, name)\n",
        ),
    ),
}


def activate(overrides: bool = False) -> None:
    """Choose this backend for the Keras that is imported next.

    Args:
        overrides: whether later values of KERAS_BACKEND have no effect.

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
    add_finder().overrides |= overrides


def add_finder() -> KerasFinder:
    """Add the import finder once, and return it."""
    for finder in sys.meta_path:
        if isinstance(finder, KerasFinder):
            return finder
    sys.meta_path.insert(0, KerasFinder())
    return add_finder()


class KerasFinder(MetaPathFinder):
    """Find the modules that need a branch for this backend.

    Attributes:
        overrides: whether other values of KERAS_BACKEND have no effect.
    """

    overrides = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if self.overrides and fullname == "keras":
            _restore_choice()
        is_chosen = os.environ.get("KERAS_BACKEND") == NAME
        if not is_chosen or fullname not in PATCHES and fullname not in BRANCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(
            spec.loader, importlib.machinery.SourceFileLoader
        ):
            return spec
        spec.loader = _BranchLoader(spec.loader.name, spec.loader.path)
        return spec


def _restore_choice() -> None:
    """Choose this backend again, and report the choice of the script."""
    choice = os.environ.get("KERAS_BACKEND")
    if choice != NAME:
        os.environ["KERAS_BACKEND"] = NAME
        print(
            f"keras_toolkit: the script selects the backend {choice!r}; it runs on "
            f"{NAME}",
            file=sys.stderr,
        )


class _BranchLoader(importlib.machinery.SourceFileLoader):
    """Load a module with the branches for this backend."""

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname) or ""
        for old, new in PATCHES.get(fullname, ()):
            source = add_branch(fullname, source, old, new)
        for old, new in BRANCHES.get(fullname, ()):
            # Another version of a library may accept this backend without a branch.
            source = source.replace(old, new, 1)
        return compile(source, self.path, "exec")


def add_branch(name: str, source: str, old: str, new: str) -> str:
    """Return the source of a module of Keras with one text replaced.

    Args:
        name: of the module.
        source: its text.
        old: a text that occurs once in it.
        new: the replacement.

    Raises:
        ImportError: if the text is missing, as in an unknown version of Keras.
    """
    if source.count(old) == 1:
        return source.replace(old, new)
    raise ImportError(
        f"keras_toolkit: this version of Keras is unknown: {name} does not contain "
        f"{old.strip()!r} once. Known versions are 3.12 to 3.15; install one of them, "
        "or a newer version of toolkit"
    )
