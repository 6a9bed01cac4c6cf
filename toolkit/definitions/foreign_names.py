"""Names of other libraries and of earlier versions of Keras, for error messages.

The tables map a name that somebody may remember to the name, or the expression, that
has its meaning in toolkit. They are read after an error only.
"""

from __future__ import annotations

from collections.abc import Mapping

# Names of arguments -> names in toolkit. A name that the function accepts is suggested.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("lr", "eta", "learn_rate"), ("learning_rate",)),
    **dict.fromkeys(("beta1", "betas"), ("beta_1",)),
    "beta2": ("beta_2",),
    "eps": ("epsilon",),
    "max_norm": ("global_clipnorm", "clipnorm", "max_value"),
    **dict.fromkeys(("p", "prob", "drop_prob", "dropout_rate"), ("rate",)),
    **dict.fromkeys(("dim", "dims"), ("axis", "axes")),
    "keepdim": ("keepdims",),
    "other": ("x2", "y"),
    "input": ("x", "inputs"),
    **dict.fromkeys(("tensor", "tensors"), ("xs", "x", "inputs")),
    **dict.fromkeys(
        ("out_features", "output_dim", "nb_units", "num_units", "hidden_size"),
        ("units",),
    ),
    **dict.fromkeys(
        ("out_channels", "nb_filter", "nb_filters", "num_filters", "channels"),
        ("filters",),
    ),
    **dict.fromkeys(("filter_size", "kernel", "kernel_shape"), ("kernel_size",)),
    **dict.fromkeys(("stride", "subsample"), ("strides",)),
    "dilation": ("dilation_rate",),
    **dict.fromkeys(("pool_length", "window"), ("pool_size",)),
    "border_mode": ("padding",),
    "dim_ordering": ("data_format",),
    "bias": ("use_bias",),
    **dict.fromkeys(("nonlinearity", "activation_fn"), ("activation",)),
    **dict.fromkeys(("init", "weight_init"), ("kernel_initializer",)),
    "W_regularizer": ("kernel_regularizer",),
    "b_regularizer": ("bias_regularizer",),
    "num_embeddings": ("input_dim",),
    "vocab_size": ("input_dim", "max_tokens"),
    "embedding_dim": ("output_dim",),
    "embed_dim": ("key_dim", "output_dim"),
    **dict.fromkeys(
        ("nb_epoch", "n_epochs", "num_epochs", "max_epochs", "epoch"), ("epochs",)
    ),
    **dict.fromkeys(("batchsize", "bs", "batch"), ("batch_size",)),
    **dict.fromkeys(("validation", "val_data", "eval_set"), ("validation_data",)),
    "val_split": ("validation_split",),
    "samples_per_epoch": ("steps_per_epoch",),
    **dict.fromkeys(("criterion", "loss_fn", "objective"), ("loss",)),
    "requires_grad": ("trainable",),
    "show_shape": ("show_shapes",),
    **dict.fromkeys(("X", "data"), ("x",)),
    "target": ("y", "y_true"),
}

# Names of arguments that no argument replaces -> the means of toolkit.
ARGUMENT_NOTES: Mapping[str, str] = {
    "decay": "pass a schedule of toolkit.optimizers.schedules as learning_rate",
    **dict.fromkeys(
        ("in_features", "in_channels", "input_size", "num_features"),
        "remove it: the layer infers it from its first input",
    ),
    "input_length": "remove it: the layer infers it from its input",
    **dict.fromkeys(
        ("workers", "use_multiprocessing", "max_queue_size"),
        "since Keras 3 it is an argument of PyDataset",
    ),
    "weights": "build the layer, then call set_weights",
    "batch_first": "remove it: the first axis is always the batch",
    "num_layers": "stack the layers, with return_sequences=True for all but the last",
    "bidirectional": "wrap the layer in Bidirectional",
}

# Names of losses, metrics, activations, ... that an argument may have as a string.
CHOICES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("cross_entropy", "crossentropyloss", "nll_loss", "softmax_cross_entropy"),
        ("sparse_categorical_crossentropy", "categorical_crossentropy"),
    ),
    **dict.fromkeys(
        ("log_loss", "logloss", "bceloss", "bce_with_logits", "logistic"),
        ("binary_crossentropy",),
    ),
    **dict.fromkeys(("l1", "l1_loss"), ("mae",)),
    **dict.fromkeys(("l2", "l2_loss", "mseloss", "squared_error"), ("mse",)),
    "rmse": ("root_mean_squared_error", "mse"),
    "smooth_l1": ("huber",),
    **dict.fromkeys(("f1", "f_score"), ("f1_score",)),
    "roc_auc": ("auc",),
    "r2": ("r2_score", "R2Score"),
    "lrelu": ("leaky_relu",),
    **dict.fromkeys(("xavier", "xavier_uniform", "glorot"), ("glorot_uniform",)),
    **dict.fromkeys(("xavier_normal",), ("glorot_normal",)),
    **dict.fromkeys(("kaiming_normal", "kaiming", "he"), ("he_normal",)),
    "kaiming_uniform": ("he_uniform",),
    **dict.fromkeys(("normal", "gaussian"), ("random_normal",)),
    "uniform": ("random_uniform",),
    "momentum": ("sgd",),
}

# Methods and attributes of arrays and tensors -> an expression for a tensor x.
TENSORS: Mapping[str, str] = {
    **{
        name: f"ops.{name}(x, axis)"
        for name in (
            *("sum", "mean", "std", "var", "min", "max", "prod", "all", "any"),
            *("argmax", "argmin", "argsort", "sort", "cumsum", "cumprod", "squeeze"),
            *("repeat", "softmax", "norm"),
        )
    },
    **{
        name: f"ops.{name}(x)"
        for name in (
            *("abs", "exp", "log", "sqrt", "square", "floor", "ceil", "sin", "cos"),
            *("tanh", "sigmoid", "relu", "sign", "nonzero", "conj", "isnan"),
        )
    },
    **{
        name: f"ops.{target}(x, dtype)"
        for name, target in {"astype": "cast", "type": "cast", "to": "cast"}.items()
    },
    "float": 'ops.cast(x, "float32")',
    "double": 'ops.cast(x, "float64")',
    "half": 'ops.cast(x, "float16")',
    "long": 'ops.cast(x, "int64")',
    "int": 'ops.cast(x, "int32")',
    "bool": 'ops.cast(x, "bool")',
    **dict.fromkeys(("reshape", "view", "resize"), "ops.reshape(x, newshape)"),
    **dict.fromkeys(("flatten", "ravel"), "ops.ravel(x)"),
    "unsqueeze": "ops.expand_dims(x, axis)",
    **dict.fromkeys(("permute", "transpose"), "ops.transpose(x, axes)"),
    "swapaxes": "ops.swapaxes(x, axis1, axis2)",
    **dict.fromkeys(("expand", "expand_as"), "ops.broadcast_to(x, shape)"),
    "tile": "ops.tile(x, repeats)",
    "round": "ops.round(x, decimals)",
    **dict.fromkeys(("clip", "clamp"), "ops.clip(x, x_min, x_max)"),
    "pow": "x ** y",
    "add": "x + y",
    **dict.fromkeys(
        ("add_", "sub_", "mul_", "div_"), "x = x + y: tensors do not change"
    ),
    "sub": "x - y",
    "mul": "x * y",
    "div": "x / y",
    "dot": "ops.dot(x, y)",
    **dict.fromkeys(("matmul", "mm", "bmm"), "ops.matmul(x, y)"),
    "take": "ops.take(x, indices, axis)",
    "gather": "ops.take_along_axis(x, indices, axis)",
    **dict.fromkeys(("scatter_", "scatter"), "ops.scatter_update(x, indices, updates)"),
    "masked_fill": "ops.where(mask, value, x)",
    **dict.fromkeys(("split", "chunk"), "ops.split(x, indices_or_sections, axis)"),
    "topk": "ops.top_k(x, k)",
    "fill_": "ops.full_like(x, value)",
    "zero_": "ops.zeros_like(x)",
    "detach": "ops.stop_gradient(x), or x.numpy() for its values",
    **dict.fromkeys(("cpu", "eval"), "x.numpy() for its values"),
    "cuda": "with toolkit.device(name):",
    **dict.fromkeys(("clone", "copy"), "ops.copy(x)"),
    "get_shape": "x.shape",
    **dict.fromkeys(
        ("backward", "grad"),
        "tape.gradient(loss, variables), after `with toolkit.GradientTape() as tape:`",
    ),
    "requires_grad": "toolkit.Variable(x, trainable=...)",
    "requires_grad_": "toolkit.Variable(x, trainable=...)",
}

# Methods and attributes of layers and models -> the means of toolkit.
LAYERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("parameters", "named_parameters", "trainable_parameters", "params"),
        "`trainable_variables`",
    ),
    "state_dict": "`get_weights()`, or `save_weights(path)` of a model",
    "load_state_dict": "`set_weights(arrays)`, or `load_weights(path)` of a model",
    "buffers": "`non_trainable_variables`",
    **dict.fromkeys(("children", "modules"), "`layers` of a model"),
    "register_buffer": "`add_weight(..., trainable=False)`",
    "register_parameter": "`add_weight(...)`",
    "requires_grad_": "`trainable = False`",
    "zero_grad": "nothing: a GradientTape computes new gradients each time",
    "eval": "`model(x, training=False)`",
    **dict.fromkeys(
        ("cuda", "to", "cpu"), "`with toolkit.device(name):` around the creation"
    ),
    "add_update": "`variable.assign(value)` in `call`",
    "inbound_nodes": "`input` and `output`",
    "output_dim": "`compute_output_shape(input_shape)`",
}
MODELS: Mapping[str, str] = {
    "fit_generator": "`fit`, which accepts generators",
    "evaluate_generator": "`evaluate`, which accepts generators",
    "predict_generator": "`predict`, which accepts generators",
    **dict.fromkeys(
        ("predict_classes", "predict_class"),
        "`predict(x).argmax(axis=-1)`, or `predict(x) > 0.5` for one sigmoid unit",
    ),
    **dict.fromkeys(("predict_proba", "predict_log_proba"), "`predict`"),
    "train": "`fit`, or `model(x, training=True)`",
    "score": "`evaluate`",
    "partial_fit": "`train_on_batch`",
    "to_yaml": "`to_json`",
    "save_model": "`save`",
    "load_model": "`toolkit.models.load_model(path)`",
    "learning_rate": "`optimizer.learning_rate`",
    "lr": "`optimizer.learning_rate`",
    "accuracy": "`evaluate`, or the `history` of the result of `fit`",
    "inputs_shape": "`input_shape`",
    "validate": "`evaluate`",
}
OPTIMIZERS: Mapping[str, str] = {
    "lr": "`learning_rate`",
    "decay": "a schedule as `learning_rate`",
    "step": "`apply(gradients, variables)`",
    "zero_grad": "nothing: a GradientTape computes new gradients each time",
    "param_groups": "`variables`",
    **dict.fromkeys(
        ("get_updates", "get_gradients", "compute_gradients"),
        "`tape.gradient(loss, variables)`, then `apply(gradients, variables)`",
    ),
    "state_dict": "`variables`",
}

# Names of modules -> names of other libraries -> the object in toolkit.
_LAYER_NAMES: Mapping[str, str] = {
    "Linear": "layers.Dense",
    "FullyConnected": "layers.Dense",
    "TimeDistributedDense": "layers.Dense",
    **{f"Convolution{n}D": f"layers.Conv{n}D" for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": f"layers.Conv{n}DTranspose" for n in (1, 2, 3)},
    **{f"MaxPool{n}d": f"layers.MaxPooling{n}D" for n in (1, 2, 3)},
    **{f"AvgPool{n}d": f"layers.AveragePooling{n}D" for n in (1, 2, 3)},
    **{f"AdaptiveAvgPool{n}d": f"layers.AdaptiveAveragePooling{n}D" for n in (1, 2, 3)},
    **{f"AdaptiveMaxPool{n}d": f"layers.AdaptiveMaxPooling{n}D" for n in (1, 2, 3)},
    **{f"Dropout{n}d": f"layers.SpatialDropout{n}D" for n in (1, 2, 3)},
    **{f"ZeroPad{n}d": f"layers.ZeroPadding{n}D" for n in (1, 2, 3)},
    **dict.fromkeys(
        ("BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
        "layers.BatchNormalization",
    ),
    "LayerNorm": "layers.LayerNormalization",
    "GroupNorm": "layers.GroupNormalization",
    "RMSNorm": "layers.RMSNormalization",
    "InstanceNorm2d": "layers.GroupNormalization(groups=-1)",
    "Upsample": "layers.UpSampling2D",
    "CuDNNLSTM": "layers.LSTM",
    "CuDNNGRU": "layers.GRU",
    "RNNCell": "layers.SimpleRNNCell",
    **dict.fromkeys(("merge", "Merge"), "layers.Concatenate"),
    **{
        name: f'layers.Activation("{name.lower()}")'
        for name in ("Sigmoid", "Tanh", "GELU", "SiLU", "Mish", "Softplus", "Swish")
    },
    "Module": "layers.Layer",
    "Parameter": "Variable",
    "Sequential": "Sequential",
    "Model": "Model",
    "TransformerEncoder": "layers.MultiHeadAttention",
}
_LOSS_NAMES: Mapping[str, str] = {
    **dict.fromkeys(
        ("CrossEntropyLoss", "CrossEntropy"),
        "losses.SparseCategoricalCrossentropy(from_logits=True)",
    ),
    "NLLLoss": "losses.SparseCategoricalCrossentropy",
    "BCELoss": "losses.BinaryCrossentropy",
    "BCEWithLogitsLoss": "losses.BinaryCrossentropy(from_logits=True)",
    "MSELoss": "losses.MeanSquaredError",
    "L1Loss": "losses.MeanAbsoluteError",
    **dict.fromkeys(("SmoothL1Loss", "HuberLoss"), "losses.Huber"),
    "KLDivLoss": "losses.KLDivergence",
    "CTCLoss": "losses.CTC",
}
_OP_NAMES: Mapping[str, str] = {
    **{
        f"reduce_{name}": f"ops.{name}"
        for name in ("sum", "mean", "max", "min", "prod", "all", "any")
    },
    **dict.fromkeys(("cat", "concat"), "ops.concatenate"),
    **dict.fromkeys(("mm", "bmm"), "ops.matmul"),
    "permute": "ops.transpose",
    **dict.fromkeys(("clamp", "clip_by_value"), "ops.clip"),
    "unsqueeze": "ops.expand_dims",
    **dict.fromkeys(("tensor", "constant", "as_tensor"), "ops.convert_to_tensor"),
    **dict.fromkeys(("randn", "random_normal"), "random.normal"),
    **dict.fromkeys(("rand", "random_uniform"), "random.uniform"),
    "gather": "ops.take",
    "pow": "ops.power",
    "mul": "ops.multiply",
    "sub": "ops.subtract",
    "div": "ops.divide",
    **dict.fromkeys(
        ("cross_entropy", "nll_loss"), "ops.sparse_categorical_crossentropy"
    ),
    "eq": "ops.equal",
    "ne": "ops.not_equal",
    "gt": "ops.greater",
    "lt": "ops.less",
    "range": "ops.arange",
    "rank": "ops.ndim",
    "masked_fill": "ops.where",
    "to_categorical": "ops.one_hot",
    "variable": "Variable",
    "detach": "ops.stop_gradient",
    "from_numpy": "ops.convert_to_tensor",
}
MODULES: Mapping[str, Mapping[str, str]] = {
    "toolkit": {
        "nn": "layers",
        "optim": "optimizers",
        "Module": "layers.Layer",
        "Layer": "layers.Layer",
        "Dense": "layers.Dense",
        "Session": "function",
        "placeholder": "Input",
        "Parameter": "Variable",
        "no_grad": "ops.stop_gradient",
        "engine": "layers",
        "load_model": "models.load_model",
        **_OP_NAMES,
    },
    "toolkit.layers": _LAYER_NAMES,
    "toolkit.losses": _LOSS_NAMES,
    "toolkit.ops": _OP_NAMES,
    "toolkit.utils": {
        "np_utils": "utils.to_categorical",
        "multi_gpu_model": "distribution",
    },
}
