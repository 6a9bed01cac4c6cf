"""toolkit: a Keras-style modeling toolkit on a small, fast core.

Names are imported on first use, so that `import toolkit` is fast.
"""

from importlib import import_module as _import_module

_MODULES = (
    "activations",
    "applications",
    "backend",
    "callbacks",
    "config",
    "constraints",
    "data",
    "datasets",
    "distillation",
    "distribution",
    "dtype_policies",
    "errors",
    "export",
    "initializers",
    "inspection",
    "layers",
    "legacy",
    "losses",
    "metrics",
    "mixed_precision",
    "models",
    "ops",
    "optimizers",
    "preprocessing",
    "quantizers",
    "random",
    "ray",
    "regularizers",
    "saving",
    "serialization",
    "serving",
    "tree",
    "utils",
    "visualization",
    "wrappers",
)
_NAMES = {
    "DTypePolicy": "toolkit.dtype_policies",
    "FloatDTypePolicy": "toolkit.dtype_policies",
    "Function": "toolkit.models.functional.function",
    "function": "toolkit.functions.decorator",
    "GradientTape": "toolkit.autodiff.tape",
    "Graph": "toolkit.ir",
    "Initializer": "toolkit.initializers",
    "Input": "toolkit.layers",
    "InputSpec": "toolkit.layers",
    "KerasTensor": "toolkit.ops.symbolic",
    "Layer": "toolkit.layers",
    "Loss": "toolkit.losses",
    "Metric": "toolkit.metrics",
    "Model": "toolkit.models",
    "Operation": "toolkit.ops.symbolic",
    "Optimizer": "toolkit.optimizers",
    "Quantizer": "toolkit.quantizers",
    "Regularizer": "toolkit.regularizers",
    "RematScope": "toolkit.layers.remat",
    "Sequential": "toolkit.models",
    "StatelessScope": "toolkit.core.trace",
    "SymbolicScope": "toolkit.layers.call",
    "Tensor": "toolkit.core.tensor",
    "Variable": "toolkit.core.variable",
    "__version__": "toolkit.release",
    "device": "toolkit.core.tensor",
    "launch_notebook": "toolkit.distribution",
    "load_native": "toolkit.export.native.loading",
    "name_scope": "toolkit.core.naming",
    "register_backend": "toolkit.backends.registry",
    "remat": "toolkit.layers.remat",
    "version": "toolkit.release",
}
# Modules that complete a class of another module: with operators, with initializers,
# with the compiled reverse passes of loops.
_COMPLETING_MODULES = {
    "toolkit.autodiff.tape": ("toolkit.functions.reverse_programs",),
    "toolkit.ops.symbolic": ("toolkit.ops",),
    "toolkit.core.tensor": ("toolkit.ops",),
    "toolkit.core.variable": ("toolkit.ops", "toolkit.initializers"),
}

__all__ = [*_MODULES, *_NAMES]


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    if name in _NAMES:
        for module in _COMPLETING_MODULES.get(_NAMES[name], ()):
            _import_module(module)
        value = getattr(_import_module(_NAMES[name]), name)
    elif name in _MODULES:
        value = _import_module(f"toolkit.{name}")
    else:
        _namespaces = _import_module("toolkit.definitions.namespaces")
        raise _namespaces.missing_name("toolkit", name, __dir__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
