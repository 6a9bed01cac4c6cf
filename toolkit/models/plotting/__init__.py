"""Pictures of models: `plot_model`, and `model_to_dot` for other programs."""

from toolkit.models.plotting.plot import model_to_dot, plot_model

__all__ = ["model_to_dot", "plot_model"]
