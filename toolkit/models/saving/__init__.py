"""Models and weights in files; readers and writers are imported on first use."""

from toolkit.definitions.namespaces import on_first_use

_HOMES = {
    ".weights": ("load_weights", "save_weights"),
    ".whole_models": ("load_model", "save_model"),
}

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
