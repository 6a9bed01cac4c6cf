"""Models and weights in files; readers and writers are imported on first use."""

from toolkit.definitions.namespaces import lazy_namespace

_HOMES = {
    ".weights": ("load_weights", "save_weights"),
    ".whole_models": ("load_model", "save_model"),
}

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = lazy_namespace(__name__, _HOMES)
