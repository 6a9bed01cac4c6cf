"""The public names of callbacks: `from toolkit.callbacks import EarlyStopping`."""

from toolkit.models.callbacks import *  # noqa: F403
from toolkit.models.callbacks import __all__ as __all__
