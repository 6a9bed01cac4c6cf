"""Callbacks, with the names and arguments of `keras.callbacks`."""

from toolkit.definitions.namespaces import lazy_namespace
from toolkit.models.callbacks.averages import SwapEMAWeights
from toolkit.models.callbacks.backup import BackupAndRestore
from toolkit.models.callbacks.callback import Callback, LambdaCallback
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.callbacks.checkpoint import ModelCheckpoint
from toolkit.models.callbacks.csv_logger import CSVLogger
from toolkit.models.callbacks.history import History
from toolkit.models.callbacks.learning_rate import (
    LearningRateScheduler,
    ReduceLROnPlateau,
)
from toolkit.models.callbacks.orbax import OrbaxCheckpoint
from toolkit.models.callbacks.progress import ProgbarLogger
from toolkit.models.callbacks.remote import RemoteMonitor
from toolkit.models.callbacks.stopping import EarlyStopping, TerminateOnNaN
from toolkit.models.callbacks.tensorboard import TensorBoard

__all__ = [
    "BackupAndRestore",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "OrbaxCheckpoint",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "RemoteMonitor",
    "SwapEMAWeights",
    "TensorBoard",
    "TerminateOnNaN",
]

__getattr__, __dir__ = lazy_namespace(__name__, {})
