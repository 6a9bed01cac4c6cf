"""Models: layers that are trained, evaluated, summarized and saved together."""

from toolkit.models.functional import Functional
from toolkit.models.model import Model
from toolkit.models.sequential import Sequential

__all__ = ["Functional", "Model", "Sequential"]
