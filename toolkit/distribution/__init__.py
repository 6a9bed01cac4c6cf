"""Distribution of computation and state over processes: meshes, layouts, strategies."""

from toolkit.distribution.checkpoint_manager import CheckpointManager
from toolkit.distribution.checkpoints import Checkpoint
from toolkit.distribution.data_parallel import DataParallel
from toolkit.distribution.devices import get_device_count, initialize, list_devices
from toolkit.distribution.layouts import DeviceMesh, LayoutMap, TensorLayout
from toolkit.distribution.notebook import launch_notebook
from toolkit.distribution.pipelines import PipelineParallel
from toolkit.distribution.simulation import Prediction, Simulation, simulate
from toolkit.distribution.strategies import (
    ModelParallel,
    distribute_tensor,
    distribution,
    set_distribution,
)
from toolkit.distribution.timeline import Link

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "DataParallel",
    "DeviceMesh",
    "LayoutMap",
    "Link",
    "ModelParallel",
    "PipelineParallel",
    "Prediction",
    "Simulation",
    "TensorLayout",
    "distribute_tensor",
    "distribution",
    "get_device_count",
    "initialize",
    "launch_notebook",
    "list_devices",
    "set_distribution",
    "simulate",
]
