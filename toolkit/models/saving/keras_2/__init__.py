"""Files of Keras 2: their configs, their compilation and the state of optimizers.

Keras 3 changed names, arguments and formulas. A config of Keras 2 is converted to a
current config that computes the same numbers.
"""

from toolkit.models.saving.keras_2.compiling import upgrade_compilation
from toolkit.models.saving.keras_2.configs import upgrade_config
from toolkit.models.saving.keras_2.optimizer_state import (
    load_optimizer_state,
    split_state,
)
from toolkit.models.saving.keras_2.summaries import take_layer_summaries, take_summaries
from toolkit.models.saving.keras_2.versions import is_keras_2, major_version

__all__ = [
    "is_keras_2",
    "load_optimizer_state",
    "major_version",
    "split_state",
    "take_layer_summaries",
    "take_summaries",
    "upgrade_compilation",
    "upgrade_config",
]
