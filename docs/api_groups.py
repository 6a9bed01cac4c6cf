"""Order and titles of the pages of the API reference, and the groups of names."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.ops import nn
from toolkit.ops.keras_modules import MODULE_OF

# Sections of the index: a namespace and its title. A namespace that is absent has the
# title of its docstring. If two namespaces export an object, the first has its entry.
INDEX = {
    "Models and layers": {
        "toolkit.models": "Models",
        "toolkit.layers": "Layers",
        "toolkit.applications": "Applications",
    },
    "Training": {
        "toolkit.losses": "Losses",
        "toolkit.metrics": "Metrics",
        "toolkit.optimizers": "Optimizers",
        "toolkit.optimizers.schedules": "Learning-rate schedules",
        "toolkit.callbacks": "Callbacks",
        "toolkit.quantizers": "Quantization",
        "toolkit.distillation": "Knowledge distillation",
        "toolkit.wrappers": "Estimators for scikit-learn",
    },
    "Data": {
        "toolkit.data": "Input pipelines",
        "toolkit.datasets": "Data sets",
    },
    "Operations": {
        "toolkit.ops": "Operations",
        "toolkit.ops.image": "Operations on images",
        "toolkit.random": "Random numbers",
        "toolkit.tree": "Nested structures",
    },
    "Arguments of layers": {
        "toolkit.activations": "Activations",
        "toolkit.initializers": "Initializers",
        "toolkit.regularizers": "Regularizers",
        "toolkit.constraints": "Constraints",
        "toolkit.dtype_policies": "Dtype policies",
        "toolkit.mixed_precision": "Mixed precision",
    },
    "Files and deployment": {
        "toolkit.saving": "Saving and loading",
        "toolkit.export": "Export",
        "toolkit.serving": "Serving",
        "toolkit.distribution": "Distributed training",
        "toolkit.ray": "Training on Ray",
    },
    "Settings and tools": {
        "toolkit.config": "Settings",
        "toolkit.utils": "Utilities",
        "toolkit.utils.bounding_boxes": "Bounding boxes",
        "toolkit.preprocessing": "Preprocessing",
        "toolkit.visualization": "Visualization",
        "toolkit.inspection": "Inspection of compiled functions",
        "toolkit.errors": "Errors",
    },
    "Core": {
        "toolkit.backend": "Backend utilities",
        "toolkit.serialization": "Serialization",
        "toolkit": "Tensors, gradients and scopes",
    },
    "Other libraries": {
        "toolkit.compat": "Names of TensorFlow",
    },
}
TITLES = {name: title for section in INDEX.values() for name, title in section.items()}


# Descriptions of the constants that a namespace exports.
CONSTANTS = {
    "toolkit.data.AUTOTUNE": (
        "The value of `num_parallel_calls` and `buffer_size` that selects the number, "
        "and changes it during a pass."
    ),
    "toolkit.data.INFINITE_CARDINALITY": (
        "The result of `Dataset.cardinality` for a data set without end."
    ),
    "toolkit.data.UNKNOWN_CARDINALITY": (
        "The result of `Dataset.cardinality` for an unknown number of elements."
    ),
}


def _keras_names(module: str) -> list[str]:
    """Return the names of a module of Keras ops."""
    return [n for n, home in MODULE_OF.items() if home == f"keras.src.ops.{module}"]


# Groups of the names of a namespace. A group lists names, and modules for all of their
# other names.
GROUPS: dict[str, dict[str, Sequence[str]]] = {
    "toolkit.layers": {
        "Core": [
            *(".layer", ".input_layer", ".input_spec", ".dense", ".einsum_dense"),
            *(".embedding", ".basic", ".wrappers", ".spectral_normalization"),
            *(".serializing", ".preprocessing.pipeline", "Wrapper", "Activation"),
        ],
        "Convolution": [".conv", ".depthwise", ".locally_connected"],
        "Pooling": [".pooling", ".adaptive_pooling"],
        "Recurrent": [
            *(".recurrent", ".rnn", ".cells", ".cell_stacks", ".conv_lstm"),
            *("Bidirectional", "TimeDistributed"),
        ],
        "Normalization": [
            *(".normalization", ".batch_normalization", "SpectralNormalization"),
        ],
        "Regularization": [".regularization", "ActivityRegularization"],
        "Attention": [".attention", ".dot_attention", ".grouped_attention"],
        "Activation": [".activation"],
        "Reshaping": [".reshaping", ".padding"],
        "Merging": [".merging"],
        "Text and category preprocessing": [
            *(".preprocessing.text", ".preprocessing.lookup", ".preprocessing.hashing"),
            *(".preprocessing.encoding", ".preprocessing.discretization"),
            *(".preprocessing.normalization",),
        ],
        "Image preprocessing": [
            *(".preprocessing.resizing", ".preprocessing.cropping", "Rescaling"),
            ".preprocessing.histograms",
        ],
        "Image augmentation": [
            *(".preprocessing.affine", ".preprocessing.augmentation_policies"),
            *(".preprocessing.color_adjustments", ".preprocessing.color_filters"),
            *(".preprocessing.erasing", ".preprocessing.geometry"),
            *(".preprocessing.mixing", "RandomCrop"),
        ],
        "Audio preprocessing": [".preprocessing.spectrograms"],
    },
    "toolkit.ops": {
        "Core": [*_keras_names("core"), "array", "copy", "get_item", "vectorize"],
        "NumPy: creation": [".creation", ".windows"],
        "NumPy: elementwise arithmetic": [
            *(".elementwise", ".numeric", ".numpy_like", ".complex", ".special"),
            "remainder",
        ],
        "NumPy: exponents and trigonometry": [".transcendental"],
        "NumPy: comparison, logic and bits": [
            *("equal", "greater", "greater_equal", "isclose", "allclose", "isfinite"),
            *("isinf", "isnan", "isneginf", "isposinf", "isreal", "less"),
            *("less_equal", "logical_and", "logical_not", "logical_or", "logical_xor"),
            *("not_equal", "signbit", "where", "select", "nonzero", ".bits"),
        ],
        "NumPy: reductions and statistics": [".reduce", ".statistics", ".nan"],
        "NumPy: shapes and indexing": [
            *(".shape", ".arrange", ".index", ".padding", ".encode", ".sort"),
            *("ndim", "size", "trace", "rearrange"),
        ],
        "NumPy: products": [".contract", ".einsum", "slogdet"],
        "Neural networks": nn.__all__,
        "Math": _keras_names("math"),
        "Linear algebra": _keras_names("linalg"),
    },
    "toolkit.config": {
        "Backends and devices": [
            *("backend", "backend_of", "set_backend", "device", "set_device"),
            *("check_device", "list_devices", "logical_devices", "set_logical_devices"),
            *("placement", "num_threads", "set_num_threads", "default_num_threads"),
            "show",
        ],
        "Dtypes, precision and image formats": [
            *("floatx", "set_floatx", "epsilon", "set_epsilon", "dtype_policy"),
            *("set_dtype_policy", "matmul_precision", "set_matmul_precision"),
            *("image_data_format", "set_image_data_format", "standardize_data_format"),
        ],
        "Training and compilation": [
            *("autotune", "set_autotune", "free_extents", "set_free_extents"),
            *("max_epochs", "set_max_epochs"),
            *("max_steps_per_epoch", "set_max_steps_per_epoch"),
            *("enable_flash_attention", "disable_flash_attention"),
            *("is_flash_attention_enabled", "is_nnx_enabled"),
        ],
        "Messages and files": [
            *("enable_interactive_logging", "disable_interactive_logging"),
            *("is_interactive_logging_enabled", "enable_traceback_filtering"),
            *("disable_traceback_filtering", "is_traceback_filtering_enabled"),
            *("enable_unsafe_deserialization", "environment", "home"),
        ],
    },
    "toolkit.data": {
        "Data sets": ["Dataset", "DatasetIterator", "prefetched", "Stats"],
        "Elements": ["TensorSpec", "Ragged"],
        "Files": [".files", ".csv_files"],
        "Records of examples": [".records", ".examples", ".sequence_examples"],
        "Options and constants": [".options", ""],
    },
    "toolkit.utils": {
        "Models": [
            *("plot_model", "model_to_dot", "get_source_inputs", "is_keras_tensor"),
            *("clear_session", "set_random_seed"),
        ],
        "Data sets and features": [
            *(".audio", ".directories", ".splitting", ".sequences", ".feature_space"),
            *("PyDataset", "Sequence", "pack_x_y_sample_weight"),
            "unpack_x_y_sample_weight",
        ],
        "Images": [".images"],
        "Arrays and files": [".files", ".numerical", "standardize_dtype"],
        "Console and configuration": [
            *(".progress", ".config", "disable_interactive_logging"),
            *("enable_interactive_logging", "is_interactive_logging_enabled"),
        ],
        "Serialization": [
            *("CustomObjectScope", "custom_object_scope", "deserialize_keras_object"),
            *("get_custom_objects", "get_registered_name", "get_registered_object"),
            *("register_keras_serializable", "serialize_keras_object"),
        ],
    },
    "toolkit.losses": {
        "Classification": [".crossentropy", ".probabilistic", ".sequence"],
        "Regression": [".regression"],
        "Hinge": [".hinge"],
        "Segmentation and similarity": [".overlap"],
        "Base class and lookup": [".loss", ""],
    },
    "toolkit.metrics": {
        "Accuracy": [".accuracy"],
        "Classification": [".auc", ".confusion", ".f_score"],
        "Regression": [
            *(".regression", ".correlation", "CosineSimilarity", "LogCoshError"),
            *("MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredError"),
            *("MeanSquaredLogarithmicError", "toolkit.losses.regression"),
        ],
        "Probabilistic": [
            *("BinaryCrossentropy", "CategoricalCrossentropy", "KLDivergence"),
            *("Poisson", "SparseCategoricalCrossentropy"),
            "toolkit.losses.probabilistic",
        ],
        "Hinge": [
            *("CategoricalHinge", "Hinge", "SquaredHinge", "toolkit.losses.hinge"),
        ],
        "Segmentation": [".iou"],
        "Base classes and lookup": [".metric", ".reduction", ""],
    },
}
