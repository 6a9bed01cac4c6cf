"""The exported models: one for each row of the table of layers, and more."""

import numpy as np

import toolkit
from tests.layers.test_all_layers import CASES
from toolkit import Input, Model, Sequential, applications, layers, ops, quantizers

IMAGE = (7, 6, 3)


def chain(*layers_of_model, shape=(6, 3), dtype="float32"):
    """Return a sequential model."""
    return Sequential([Input(shape, dtype=dtype), *layers_of_model])


def called(layer, *shapes, dtype="float32"):
    """Return a model of one layer with several inputs."""
    inputs = [Input(shape, dtype=dtype) for shape in shapes]
    return Model(inputs, layer(inputs))


def of_case(name, arguments, shapes):
    """Return the model of a row of the table of layers, with nonzero weights."""

    def symbol(shape):
        if isinstance(shape, list):
            return [symbol(one) for one in shape]
        return Input(shape[1:])

    symbols = [symbol(shape) for shape in shapes]
    layer = getattr(layers, name)(**arguments)
    return disturbed(
        Model(symbols if len(symbols) > 1 else symbols[0], layer(*symbols))
    )


def disturbed(model):
    """Disturb each weight of the model so that none is zero or one."""
    rng = np.random.default_rng(1)
    for variable in model.weights:
        if variable.dtype == "float32":
            noise = rng.uniform(0, 0.3, variable.shape).astype("float32")
            variable.assign(variable.numpy() + noise)
    return model


def masked(layer):
    """Return a recurrent layer with a mask of an embedding, which masks any step."""
    tokens = Input((6,), dtype="int32")
    return Model(tokens, layer(layers.Embedding(5, 3, mask_zero=True)(tokens)))


def attending(steps, **arguments):
    """Return a model with self-attention."""
    x = Input((steps, 8))
    return Model(x, layers.MultiHeadAttention(2, 4)(x, x, **arguments))


def two_ways():
    """Return a model with several inputs and a structure of outputs."""
    a, b = Input((4,), name="a"), Input((4,), name="b")
    return Model([a, b], {"sum": layers.Dense(4)(a) + b, "twice": b * 2})


def adapted():
    """Return an adapted normalization."""
    layer = layers.Normalization()
    layer.adapt(np.random.default_rng(0).normal(3, 2, (20, 3)).astype("float32"))
    return chain(layer, shape=(3,))


def tied():
    """Return a model that uses an embedding in reverse, too."""
    tokens, layer = Input((6,), dtype="int32"), layers.ReversibleEmbedding(5, 4)
    return Model(tokens, layer(layer(tokens), reverse=True))


def quantized(mode):
    """Return a model with quantized weights."""
    model = chain(layers.Dense(4, activation="relu"), layers.Dense(2), shape=(6,))
    model.quantize(mode)
    return model


def calibrated():
    """Return a network with integer convolutions."""
    first = layers.Conv2D(9, 3, padding="same", activation="relu")
    stack = first, layers.ZeroPadding2D(1), layers.DepthwiseConv2D(3, strides=2)
    model = chain(*stack, layers.Conv2D(4, 1), shape=(7, 6, 8))
    x = np.random.default_rng(0).uniform(-1, 1, (2, 7, 6, 8)).astype("float32")
    model.quantize(config=quantizers.Int8QuantizationConfig(dataset=x))
    return model


def with_loop():
    """Return a model with a loop that ends by a condition."""

    def call(x):
        return ops.while_loop(
            lambda i, y: ops.logical_and(i < 20, ops.max(y) < 100.0),
            lambda i, y: (i + 1, y * 1.5),
            (0, x),
        )[1]

    return chain(layers.Lambda(call))


def with_branch():
    """Return a model that computes one of two branches."""

    def call(x):
        bound = ops.convert_to_tensor(2.0)
        return ops.cond(ops.sum(x) > bound, lambda: x * bound, lambda: x - 1.0)

    return chain(layers.Lambda(call))


def of_images(fixed):
    """Return a small network for images of free or fixed extents."""
    size = 12 if fixed else None
    return disturbed(
        chain(
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.AveragePooling2D(3, 2, padding="same"),
            layers.MaxPooling2D(2, 2, padding="same"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3, activation="softmax"),
            shape=(size, size, 3),
        )
    )


def as_in_training(layer):
    """Return a model that calls a layer in training mode."""
    return chain(layers.Lambda(lambda x: layer(x, training=True)), shape=IMAGE)


def dropping():
    """Return a model that always drops half of its inputs."""
    drop = layers.Lambda(lambda x: toolkit.random.dropout(x, 0.5), name="drops")
    return chain(drop, shape=(600,))


OTHERS = {
    "Embedding": lambda: chain(layers.Embedding(5, 3), shape=(6,), dtype="int32"),
    "Bidirectional": lambda: chain(layers.Bidirectional(layers.LSTM(4))),
    "Bidirectional, sequences": lambda: chain(
        layers.Bidirectional(layers.GRU(4, return_sequences=True))
    ),
    "TimeDistributed": lambda: chain(layers.TimeDistributed(layers.Dense(4))),
    "StackedRNNCells": lambda: chain(
        layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)])
    ),
    "RNN": lambda: chain(layers.RNN(layers.SimpleRNNCell(3), return_sequences=True)),
    "CategoryEncoding": lambda: chain(
        layers.CategoryEncoding(num_tokens=6), shape=(4,), dtype="int32"
    ),
    "CategoryEncoding, counts": lambda: chain(
        layers.CategoryEncoding(6, output_mode="count"), shape=(4,), dtype="int32"
    ),
    "Discretization": lambda: chain(layers.Discretization([-1.0, 0.0, 1.0])),
    "IntegerLookup": lambda: chain(
        layers.IntegerLookup(vocabulary=[1, 3, 4]), dtype="int32"
    ),
    "Normalization, adapted": adapted,
    "Lambda": lambda: chain(layers.Lambda(lambda x: ops.sort(x) * 2)),
    "ReversibleEmbedding": tied,
    "SpectralNormalization": lambda: chain(
        layers.SpectralNormalization(layers.Dense(4))
    ),
    "Pipeline": lambda: chain(
        layers.Pipeline([layers.Rescaling(2.0), layers.CenterCrop(3, 3)]), shape=IMAGE
    ),
    "RandAugment": lambda: chain(layers.RandAugment(), shape=IMAGE),
    "AugMix": lambda: chain(layers.AugMix(), shape=IMAGE),
    "several inputs and outputs": two_ways,
    "free steps, LSTM": lambda: Sequential(
        [Input((None, 3)), layers.LSTM(4, return_sequences=True), layers.Dense(2)]
    ),
    "free steps, attention": lambda: attending(None, use_causal_mask=True),
    "causal attention": lambda: attending(5, use_causal_mask=True),
    "masked LSTM": lambda: masked(layers.LSTM(4)),
    "masked GRU backwards": lambda: masked(
        layers.GRU(4, return_sequences=True, go_backwards=True)
    ),
    "masked SimpleRNN": lambda: masked(layers.SimpleRNN(4, return_state=True)),
    "int8": lambda: quantized("int8"),
    "int8 convolutions": calibrated,
    "int4": lambda: quantized("int4"),
    "float8": lambda: quantized("float8"),
    "float64": lambda: chain(layers.Dense(4, dtype="float64"), shape=(6,)),
    "channels first": lambda: chain(
        layers.Conv2D(4, 3, data_format="channels_first"),
        layers.BatchNormalization(axis=1),
        layers.MaxPooling2D(2, data_format="channels_first"),
        layers.Flatten(),
        shape=(3, 8, 8),
    ),
    "images": lambda: of_images(True),
    "images of any extents": lambda: of_images(False),
    "Equalization, training": lambda: as_in_training(
        layers.Equalization(value_range=(-4, 4), bins=16)
    ),
    "AutoContrast, training": lambda: as_in_training(
        layers.AutoContrast(value_range=(-4, 4))
    ),
    "CLAHE, training": lambda: as_in_training(
        layers.ContrastLimitedAdaptiveHistogramEqualization(
            value_range=(-4, 4), tile_grid_size=(2, 4)
        )
    ),
    "padded maxima": lambda: chain(
        layers.ZeroPadding2D(1), layers.MaxPooling2D(3, 2), shape=IMAGE
    ),
    "while_loop": with_loop,
    "cond": with_branch,
}


def of_call(call, shape, dtype="float32"):
    """Return a model of a function."""
    return chain(layers.Lambda(call), shape=shape, dtype=dtype)


def grouped(steps):
    """Return a model with an attention whose heads share keys."""
    x = Input((steps, 8))
    return Model(x, layers.GroupedQueryAttention(4, 4, 2)(x, x))


ANY = (None, None, 3)  # images of any extents
# Models with free extents other than the batch, run with several extents.
FREE = {
    "Rescaling": lambda: chain(layers.Rescaling(1 / 128, -1), shape=(None,)),
    "a chain of numbers": lambda: of_call(lambda x: (x * 2 + 1) - 3, (4, None)),
    "numbers of images": lambda: of_call(
        lambda x: ops.max(ops.max_pool(x, 2, 1) * 2 + 1, -1), (4, 5, None)
    ),
    "Normalization": lambda: chain(
        layers.Normalization(mean=1.0, variance=4.0, axis=None), shape=(None,)
    ),
    "UpSampling1D": lambda: chain(layers.UpSampling1D(2), shape=(None, 3)),
    "UpSampling2D": lambda: chain(layers.UpSampling2D(2), shape=ANY),
    "UpSampling2D, bilinear": lambda: chain(
        layers.UpSampling2D(2, interpolation="bilinear"), shape=ANY
    ),
    "UpSampling3D": lambda: chain(layers.UpSampling3D(2), shape=(None, *ANY)),
    "GroupNormalization": lambda: chain(
        layers.GroupNormalization(2), shape=(None, None, 4)
    ),
    "GroupNormalization of steps": lambda: chain(
        layers.GroupNormalization(2), shape=(None, 4)
    ),
    "GroupedQueryAttention": lambda: grouped(None),
    "TimeDistributed": lambda: chain(
        layers.TimeDistributed(layers.Dense(2)), shape=ANY
    ),
    "Dense": lambda: chain(layers.Dense(2), shape=ANY),
    "Reshape": lambda: chain(layers.Reshape((-1, 2, 3)), shape=(None, 6)),
    "Flatten": lambda: of_call(lambda x: ops.reshape(x, (-1, 6)), (None, 6)),
    "repeat": lambda: of_call(lambda x: ops.repeat(x, 3, axis=1), (None, 2)),
    "repeat of images": lambda: of_call(lambda x: ops.repeat(x, 3, axis=2), ANY),
    "the last three": lambda: of_call(lambda x: x[:, -3:], (None, 2)),
    "all but the last three": lambda: of_call(lambda x: x[:, :-3], (None, 2)),
    "from the fourth last": lambda: of_call(lambda x: x[:, -4:-1], (None, 2)),
    "backwards": lambda: of_call(lambda x: x[:, -2::-1], (None, 2)),
    "backwards, by two": lambda: of_call(lambda x: x[:, :-4:-2], (None, 2)),
    "backwards, in the middle": lambda: of_call(lambda x: x[:, -2:-4:-1], (None, 2)),
    "three of images": lambda: of_call(lambda x: ops.max_pool(x, 1)[:, -3:, :-2], ANY),
}

REFUSED = {
    "Hashing": (
        lambda: chain(layers.Hashing(4), dtype="int32"),
        "Hashing 'hashing': the layer runs in Python",
    ),
    "HashedCrossing": (
        lambda: called(layers.HashedCrossing(5), (1,), (1,), dtype="int32"),
        "HashedCrossing 'hashed_crossing': the layer runs in Python",
    ),
    "StringLookup": (
        lambda: chain(layers.StringLookup(vocabulary=["a"]), dtype="string"),
        "input .* has dtype string",
    ),
    "TextVectorization": (
        lambda: chain(
            layers.TextVectorization(vocabulary=["a"]), shape=(1,), dtype="string"
        ),
        "input .* has dtype string",
    ),
    "stateful": (
        lambda: Sequential(
            [Input(batch_shape=(2, 6, 3)), layers.LSTM(4, stateful=True, name="inner")]
        ),
        "layer 'sequential.*/inner' has the state .*stateful=False",
    ),
    "random": (dropping, "layer 'sequential.*/drops' .*allow_random=True"),
    "linear algebra": (
        lambda: chain(layers.Lambda(toolkit.ops.qr, name="factors"), shape=(3, 3)),
        "factors.*no operator for this decomposition",
    ),
    "sizes": (
        lambda: Sequential(
            [
                Input((None, 4)),
                layers.Lambda(lambda x: x[:, : x.shape[1] // 3 + 1], name="third"),
            ]
        ),
        "third.*depends on the free sizes.*fixed extents",
    ),
    "remainders of sizes": (
        lambda: chain(
            layers.Lambda(lambda x: x[:, : x.shape[1] - x.shape[1] % 5], name="fifths"),
            shape=(None, 4),
        ),
        "fifths.*depends on the free sizes.*fixed extents",
    ),
}

TABLE = {f"{i}-{case[0]}": case for i, case in enumerate(CASES)}
MODELS = {name: lambda c=case: of_case(*c) for name, case in TABLE.items()} | OTHERS


def architecture(name):
    """Return a network of `applications` with statistics like those after training."""
    model = getattr(applications, name)(weights=None)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if variable.path.endswith(("moving_variance", "gamma")) and variable.ndim == 1:
            variable.assign(rng.uniform(0.5, 1.5, variable.shape))
        elif variable.path.endswith(("moving_mean", "beta", "bias")):
            variable.assign(rng.normal(0, 0.1, variable.shape))
    return model


ARCHITECTURES = (
    *("ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0"),
    *("InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2"),
    *(
        "MobileNetV3Small",
        "NASNetMobile",
        "ResNet50",
        "ResNet50V2",
        "VGG16",
        "Xception",
    ),
)
APPLICATIONS = {name: lambda n=name: architecture(n) for name in ARCHITECTURES}
