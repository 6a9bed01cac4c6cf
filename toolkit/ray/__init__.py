"""Training on Ray: a trainer of Ray Train, its checkpoints, and data of Ray Data.

The names import the package ray when they are called (`pip install
"toolkit-nn[ray]"`), so that `import toolkit.ray` needs no Ray.
"""

from toolkit.ray.batches import dataset
from toolkit.ray.report import ReportCheckpointCallback
from toolkit.ray.trainer import Trainer

__all__ = ["ReportCheckpointCallback", "Trainer", "dataset"]
