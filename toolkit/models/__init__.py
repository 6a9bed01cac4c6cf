"""Models: layers that are trained, evaluated, summarized and saved together."""

from toolkit.models.cloning import clone_model
from toolkit.models.functional.model import Functional
from toolkit.models.importing.model import OnnxModel
from toolkit.models.model import Model
from toolkit.models.saving.json_config import model_from_json
from toolkit.models.saving.whole_models import load_model, save_model
from toolkit.models.sequential import Sequential

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
