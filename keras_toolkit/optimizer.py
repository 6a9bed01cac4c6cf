"""The part of Keras's optimizers that belongs to the backend."""

from keras.src.optimizers import base_optimizer


class ToolkitOptimizer(base_optimizer.BaseOptimizer):
    """An optimizer whose whole update is part of one compiled program."""
