"""Dtype policies and loss scaling: old names of `keras.mixed_precision`."""

from toolkit.dtype_policies import DTypePolicy, dtype_policy, set_dtype_policy
from toolkit.optimizers import LossScaleOptimizer

Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy

__all__ = [
    "DTypePolicy",
    "LossScaleOptimizer",
    "Policy",
    "dtype_policy",
    "global_policy",
    "set_dtype_policy",
    "set_global_policy",
]
