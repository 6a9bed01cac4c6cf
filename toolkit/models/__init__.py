"""Models: layers that are trained, evaluated, summarized and saved together."""

from toolkit.definitions.namespaces import lazy_namespace

_HOMES = {
    ".cloning": ("clone_model",),
    ".functional.model": ("Functional",),
    ".importing.model": ("OnnxModel",),
    ".model": ("Model",),
    ".saving.json_config": ("model_from_json",),
    ".saving.whole_models": ("load_model", "save_model"),
    ".sequential": ("Sequential",),
}

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = lazy_namespace(__name__, _HOMES)

# Import it eagerly: threads that use models for the first time at once would import a
# cycle of modules from several ends.
from toolkit.models.model import Model  # noqa: E402
