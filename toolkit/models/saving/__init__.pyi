# Written by scripts/write_stubs; do not edit.
from toolkit.models.saving.weights import (
    load_weights as load_weights,
    save_weights as save_weights,
)
from toolkit.models.saving.whole_models import (
    load_model as load_model,
    save_model as save_model,
)

__all__ = ["load_model", "load_weights", "save_model", "save_weights"]
