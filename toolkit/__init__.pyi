# Written by scripts/write_stubs; do not edit.
from toolkit import (
    activations as activations,
    applications as applications,
    backend as backend,
    callbacks as callbacks,
    config as config,
    constraints as constraints,
    data as data,
    datasets as datasets,
    distillation as distillation,
    distribution as distribution,
    dtype_policies as dtype_policies,
    errors as errors,
    export as export,
    initializers as initializers,
    inspection as inspection,
    layers as layers,
    legacy as legacy,
    losses as losses,
    metrics as metrics,
    mixed_precision as mixed_precision,
    models as models,
    ops as ops,
    optimizers as optimizers,
    preprocessing as preprocessing,
    quantizers as quantizers,
    random as random,
    ray as ray,
    regularizers as regularizers,
    saving as saving,
    serialization as serialization,
    serving as serving,
    tree as tree,
    utils as utils,
    visualization as visualization,
    wrappers as wrappers,
)
from toolkit.autodiff.tape import GradientTape as GradientTape
from toolkit.backends.registry import register_backend as register_backend
from toolkit.core.keras_tensor import KerasTensor as KerasTensor
from toolkit.core.naming import name_scope as name_scope
from toolkit.core.tensor import Tensor as Tensor, device as device
from toolkit.core.trace import StatelessScope as StatelessScope
from toolkit.core.variable import Variable as Variable
from toolkit.distribution.notebook import launch_notebook as launch_notebook
from toolkit.dtype_policies.policy import (
    DTypePolicy as DTypePolicy,
    FloatDTypePolicy as FloatDTypePolicy,
)
from toolkit.export.native.loading import load_native as load_native
from toolkit.functions.decorator import function as function
from toolkit.initializers.base import Initializer as Initializer
from toolkit.ir.graph import Graph as Graph
from toolkit.layers.call import SymbolicScope as SymbolicScope
from toolkit.layers.input_layer import Input as Input
from toolkit.layers.input_spec import InputSpec as InputSpec
from toolkit.layers.layer import Layer as Layer
from toolkit.layers.remat import RematScope as RematScope, remat as remat
from toolkit.losses.loss import Loss as Loss
from toolkit.metrics.metric import Metric as Metric
from toolkit.models.functional.function import Function as Function
from toolkit.models.model import Model as Model
from toolkit.models.sequential import Sequential as Sequential
from toolkit.ops.symbolic import Operation as Operation
from toolkit.optimizers.optimizer import Optimizer as Optimizer
from toolkit.quantizers.quantizer import Quantizer as Quantizer
from toolkit.regularizers import Regularizer as Regularizer
from toolkit.release import version as version

__version__: str

__all__ = [
    "DTypePolicy",
    "FloatDTypePolicy",
    "Function",
    "GradientTape",
    "Graph",
    "Initializer",
    "Input",
    "InputSpec",
    "KerasTensor",
    "Layer",
    "Loss",
    "Metric",
    "Model",
    "Operation",
    "Optimizer",
    "Quantizer",
    "Regularizer",
    "RematScope",
    "Sequential",
    "StatelessScope",
    "SymbolicScope",
    "Tensor",
    "Variable",
    "__version__",
    "activations",
    "applications",
    "backend",
    "callbacks",
    "config",
    "constraints",
    "data",
    "datasets",
    "device",
    "distillation",
    "distribution",
    "dtype_policies",
    "errors",
    "export",
    "function",
    "initializers",
    "inspection",
    "launch_notebook",
    "layers",
    "legacy",
    "load_native",
    "losses",
    "metrics",
    "mixed_precision",
    "models",
    "name_scope",
    "ops",
    "optimizers",
    "preprocessing",
    "quantizers",
    "random",
    "ray",
    "register_backend",
    "regularizers",
    "remat",
    "saving",
    "serialization",
    "serving",
    "tree",
    "utils",
    "version",
    "visualization",
    "wrappers",
]
