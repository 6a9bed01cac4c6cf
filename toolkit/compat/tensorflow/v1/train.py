"""`tf.train` of TensorFlow 1."""

from toolkit.compat.tensorflow.io import (
    BytesList,
    Example,
    Feature,
    Features,
    FloatList,
    Int64List,
)
from toolkit.compat.tensorflow.v1.cluster.server import Server
from toolkit.compat.tensorflow.v1.cluster.spec import ClusterSpec
from toolkit.compat.tensorflow.v1.ftrl import FtrlOptimizer
from toolkit.compat.tensorflow.v1.optimizers import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    RMSPropOptimizer,
)
from toolkit.compat.tensorflow.v1.placement import (
    GreedyLoadBalancingStrategy,
    byte_size_load_fn,
    replica_device_setter,
)
from toolkit.compat.tensorflow.v1.saver import (
    Saver,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
)
from toolkit.compat.tensorflow.v1.sync_replicas import SyncReplicasOptimizer
from toolkit.compat.tensorflow.v1.training import (
    ExponentialMovingAverage,
    cosine_decay,
    create_global_step,
    exponential_decay,
    get_global_step,
    get_or_create_global_step,
    global_step,
    inverse_time_decay,
    natural_exp_decay,
    piecewise_constant,
    piecewise_constant_decay,
    polynomial_decay,
)

__all__ = [
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "BytesList",
    "ClusterSpec",
    "Example",
    "ExponentialMovingAverage",
    "Feature",
    "Features",
    "FloatList",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "GreedyLoadBalancingStrategy",
    "Int64List",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
    "Saver",
    "Server",
    "SyncReplicasOptimizer",
    "byte_size_load_fn",
    "checkpoint_exists",
    "cosine_decay",
    "create_global_step",
    "exponential_decay",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "inverse_time_decay",
    "latest_checkpoint",
    "natural_exp_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "replica_device_setter",
]
