# Written by scripts/write_stubs; do not edit.
from toolkit.models.cloning import clone_model as clone_model
from toolkit.models.functional.model import Functional as Functional
from toolkit.models.importing.model import OnnxModel as OnnxModel
from toolkit.models.model import Model as Model
from toolkit.models.saving.json_config import model_from_json as model_from_json
from toolkit.models.saving.whole_models import (
    load_model as load_model,
    save_model as save_model,
)
from toolkit.models.sequential import Sequential as Sequential

__all__ = [
    "Functional",
    "Model",
    "OnnxModel",
    "Sequential",
    "clone_model",
    "load_model",
    "model_from_json",
    "save_model",
]
