"""Test every layer with `check_layer`, in one table."""

import inspect
import shutil

import numpy as np
import pytest

import toolkit
from tests.layers.check import check_layer
from toolkit import layers, ops, tree
from toolkit.errors import UnsupportedError
from toolkit.layers import Layer

SEQUENCE, IMAGE, VOLUME = (4, 6, 3), (2, 7, 6, 4), (2, 5, 4, 6, 4)
COLORS = (2, 7, 6, 3)
BY_RANK = {1: SEQUENCE, 2: IMAGE, 3: VOLUME}

CASES = [
    ("Dense", {"units": 4, "activation": "relu"}, [(4, 3)]),
    ("Dense", {"units": 4, "use_bias": False}, [SEQUENCE]),
    (
        "EinsumDense",
        {"equation": "abc,cd->abd", "output_shape": (None, 5), "bias_axes": "d"},
        [SEQUENCE],
    ),
    (
        "EinsumDense",
        {"equation": "...x,xy->...y", "output_shape": 4},
        [IMAGE],
    ),
    ("Activation", {"activation": "tanh"}, [SEQUENCE]),
    ("ReLU", {"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.2}, [SEQUENCE]),
    ("LeakyReLU", {}, [SEQUENCE]),
    ("ThresholdedReLU", {"theta": 0.2}, [SEQUENCE]),
    ("LocallyConnected1D", {"filters": 2, "kernel_size": 2}, [SEQUENCE]),
    (
        "LocallyConnected2D",
        {"filters": 2, "kernel_size": 2, "padding": "same", "implementation": 3},
        [IMAGE],
    ),
    ("ELU", {}, [SEQUENCE]),
    ("PReLU", {"shared_axes": [1]}, [SEQUENCE]),
    ("Softmax", {"axis": (1, 2)}, [SEQUENCE]),
    ("ActivityRegularization", {"l2": 0.1}, [SEQUENCE]),
    ("Normalization", {"mean": [1.0, 2.0, 3.0], "variance": [4.0] * 3}, [SEQUENCE]),
    ("Rescaling", {"scale": 0.5, "offset": 1.0}, [IMAGE]),
    ("Rescaling", {"scale": [1.0, 2.0, 3.0]}, [SEQUENCE]),
    ("Resizing", {"height": 4, "width": 9, "antialias": True}, [IMAGE]),
    ("CenterCrop", {"height": 4, "width": 5}, [IMAGE]),
    ("RandomFlip", {"mode": "horizontal", "seed": 1}, [IMAGE]),
    ("RandomCrop", {"height": IMAGE[1], "width": IMAGE[2]}, [IMAGE]),
    ("RandomRotation", {"factor": (0.1, 0.1)}, [IMAGE]),
    ("RandomTranslation", {"height_factor": (0.3, 0.3), "width_factor": 0.0}, [IMAGE]),
    ("RandomZoom", {"height_factor": (-0.4, -0.4), "fill_mode": "wrap"}, [IMAGE]),
    ("RandomShear", {"x_factor": (0.0, 0.0)}, [IMAGE]),
    ("RandomPerspective", {"factor": (1.0, 1.0), "scale": 0.0}, [IMAGE]),
    ("RandomElasticTransform", {"factor": 0.0}, [IMAGE]),
    (
        "RandomErasing",
        {"factor": (1.0, 1.0), "scale": (1.0, 1.0), "fill_value": 2},
        [IMAGE],
    ),
    ("MaxNumBoundingBoxes", {"max_number": 3}, [IMAGE]),
    ("RandomBrightness", {"factor": (0.2, 0.2), "value_range": (-2, 2)}, [IMAGE]),
    ("RandomContrast", {"factor": (0.0, 0.0), "value_range": (-2, 2)}, [IMAGE]),
    ("RandomSaturation", {"factor": (0.8, 0.8), "value_range": (0, 1)}, [COLORS]),
    ("RandomHue", {"factor": (1.0, 1.0), "value_range": [-2, 2]}, [COLORS]),
    ("RandomColorDegeneration", {"factor": (0.4, 0.4)}, [COLORS]),
    ("RandomGrayscale", {"factor": 1.0, "seed": 1}, [COLORS]),
    ("RandomInvert", {"factor": (1.0, 1.0)}, [IMAGE]),
    ("RandomSharpness", {"factor": (0.9, 0.9), "value_range": (-2, 2)}, [IMAGE]),
    ("RandomPosterization", {"factor": 1, "value_range": (-4, 4)}, [IMAGE]),
    ("RandomGaussianBlur", {"factor": (1.0, 1.0), "sigma": (0.5, 0.5)}, [IMAGE]),
    ("Solarization", {"threshold_factor": (0.5, 0.5)}, [IMAGE]),
    ("AutoContrast", {"value_range": (-4, 4)}, [IMAGE]),
    ("Equalization", {"value_range": (-4, 4), "bins": 16}, [IMAGE]),
    (
        "ContrastLimitedAdaptiveHistogramEqualization",
        {"value_range": (-4, 4), "tile_grid_size": (2, 4)},
        [IMAGE],
    ),
    (
        "RandomColorJitter",
        {"brightness_factor": (0.1, 0.1), "hue_factor": (0.0, 0.0)},
        [COLORS],
    ),
    ("STFTSpectrogram", {"frame_length": 8, "mode": "stft"}, [(2, 30, 3)]),
    (
        "STFTSpectrogram",
        {"frame_length": 8, "data_format": "channels_first", "expand_dims": True},
        [(2, 3, 30)],
    ),
    (
        "MelSpectrogram",
        {"fft_length": 16, "sequence_stride": 4, "num_mel_bins": 3},
        [(2, 30)],
    ),
    ("Dropout", {"rate": 0.5, "noise_shape": (None, 1, None), "seed": 1}, [SEQUENCE]),
    ("SpatialDropout1D", {"rate": 0.5}, [SEQUENCE]),
    ("SpatialDropout2D", {"rate": 0.5}, [IMAGE]),
    ("SpatialDropout3D", {"rate": 0.5, "data_format": "channels_first"}, [VOLUME]),
    ("GaussianNoise", {"stddev": 0.5}, [SEQUENCE]),
    ("GaussianDropout", {"rate": 0.5}, [SEQUENCE]),
    ("Flatten", {}, [IMAGE]),
    ("Flatten", {"data_format": "channels_first"}, [IMAGE]),
    ("Flatten", {}, [(4,)]),
    ("Reshape", {"target_shape": (-1, 2)}, [SEQUENCE]),
    ("Permute", {"dims": (2, 1)}, [SEQUENCE]),
    ("RepeatVector", {"n": 3}, [(4, 3)]),
    ("Identity", {}, [SEQUENCE]),
    ("Masking", {}, [SEQUENCE]),
    ("Add", {}, [[SEQUENCE, SEQUENCE, SEQUENCE]]),
    ("Subtract", {}, [[SEQUENCE, SEQUENCE]]),
    ("Multiply", {}, [[SEQUENCE, (4, 3)]]),
    ("Average", {}, [[SEQUENCE, SEQUENCE]]),
    ("Maximum", {}, [[SEQUENCE, SEQUENCE]]),
    ("Minimum", {}, [[SEQUENCE, SEQUENCE]]),
    ("Concatenate", {"axis": 1}, [[SEQUENCE, (4, 2, 3)]]),
    ("Dot", {"axes": (1, 2), "normalize": True}, [[SEQUENCE, (4, 5, 6)]]),
    ("BatchNormalization", {}, [IMAGE]),
    ("BatchNormalization", {"axis": 1, "scale": False}, [SEQUENCE]),
    ("LayerNormalization", {}, [SEQUENCE]),
    ("LayerNormalization", {"axis": [1, 2], "center": False}, [SEQUENCE]),
    ("GroupNormalization", {"groups": 2}, [IMAGE]),
    ("RMSNormalization", {}, [SEQUENCE]),
    ("UnitNormalization", {}, [SEQUENCE]),
    ("AlphaDropout", {"rate": 0.5}, [SEQUENCE]),
    ("Attention", {"use_scale": True, "dropout": 0.1}, [[SEQUENCE, (4, 5, 3)]]),
    ("Attention", {"score_mode": "concat"}, [[SEQUENCE, (4, 5, 3), (4, 5, 3)]]),
    ("AdditiveAttention", {}, [[SEQUENCE, (4, 5, 3)]]),
    (
        "GroupQueryAttention",
        {"head_dim": 4, "num_query_heads": 4, "num_key_value_heads": 2},
        [SEQUENCE, (4, 5, 7)],
    ),
    ("Dense", {"units": 4, "lora_rank": 2}, [(4, 3)]),
    ("BatchNormalization", {"renorm": True, "renorm_clipping": {"rmax": 3}}, [IMAGE]),
    ("SimpleRNN", {"units": 4}, [SEQUENCE]),
    ("SimpleRNN", {"units": 4, "unroll": True, "go_backwards": True}, [SEQUENCE]),
    ("GRU", {"units": 4, "return_sequences": True, "dropout": 0.2}, [SEQUENCE]),
    ("GRU", {"units": 4, "reset_after": False, "return_state": True}, [SEQUENCE]),
    ("LSTM", {"units": 4, "recurrent_dropout": 0.2}, [SEQUENCE]),
    (
        "LSTM",
        {"units": 4, "return_sequences": True, "return_state": True},
        [SEQUENCE],
    ),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 4}, [SEQUENCE, (4, 5, 7)]),
    (
        "MultiHeadAttention",
        {"num_heads": 2, "key_dim": 4, "dropout": 0.1, "use_gate": True},
        [SEQUENCE, SEQUENCE],
    ),
    (
        "MultiHeadAttention",
        {"num_heads": 2, "key_dim": 4, "attention_axes": (1, 2), "output_shape": 5},
        [IMAGE, IMAGE],
    ),
]
for rank, shape in BY_RANK.items():
    window = {"padding": "same", "strides": 2}
    CASES += [
        (f"Conv{rank}D", {"filters": 6, "kernel_size": 3, "groups": 1}, [shape]),
        (f"Conv{rank}D", {"filters": 6, "kernel_size": 2, **window}, [shape]),
        (f"Conv{rank}DTranspose", {"filters": 6, "kernel_size": 3, **window}, [shape]),
        (f"MaxPooling{rank}D", {"pool_size": 2}, [shape]),
        (f"AveragePooling{rank}D", {"pool_size": 3, **window}, [shape]),
        (f"GlobalMaxPooling{rank}D", {}, [shape]),
        (f"GlobalAveragePooling{rank}D", {"keepdims": True}, [shape]),
        (f"AdaptiveMaxPooling{rank}D", {"output_size": 2}, [shape]),
        (f"AdaptiveAveragePooling{rank}D", {"output_size": 3}, [shape]),
        (
            f"ConvLSTM{rank}D",
            {"filters": 2, "kernel_size": 2, "dropout": 0.2, "return_state": True},
            [(2, 3, *shape[1:])],
        ),
        (f"ZeroPadding{rank}D", {"padding": 2}, [shape]),
        (f"Cropping{rank}D", {"cropping": 1}, [shape]),
        (f"UpSampling{rank}D", {"size": 2}, [shape]),
    ]
    if rank < 3:
        multiplied = {"kernel_size": 3, "depth_multiplier": 2}
        CASES += [
            (f"DepthwiseConv{rank}D", {**multiplied, **window}, [shape]),
            (f"SeparableConv{rank}D", {"filters": 5, **multiplied}, [shape]),
        ]

# Layers that need a layer, a function or integers, or that have another call; each has
# separate tests.
ELSEWHERE = {
    *("Embedding", "Input", "InputLayer", "InputSpec", "Lambda", "Layer", "Wrapper"),
    *("RNN", "StackedRNNCells", "SimpleRNNCell", "GRUCell", "LSTMCell"),
    *("Bidirectional", "TimeDistributed"),
    *("CategoryEncoding", "Discretization", "HashedCrossing", "Hashing", "Pipeline"),
    *("IntegerLookup", "StringLookup", "TextVectorization"),
    *("AugMix", "CutMix", "MixUp", "RandAugment"),
    *("ReversibleEmbedding", "SpectralNormalization"),
}


IDS = [f"{i}-{case[0]}" for i, case in enumerate(CASES)]


@pytest.mark.parametrize(("name", "arguments", "shapes"), CASES, ids=IDS)
def test_layer(name, arguments, shapes):
    check_layer(getattr(layers, name), arguments, *shapes)


# Rows that cannot become a native library: no code is generated for them.
NOT_NATIVE = {}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no linker")
@pytest.mark.parametrize(("number", "case"), [*enumerate(CASES)], ids=IDS)
def test_layer_as_a_native_library(number, case, tmp_path):
    name, arguments, shapes = case
    model = _model_of(getattr(layers, name)(**arguments), shapes)
    path = tmp_path / "layer.so"
    if number in NOT_NATIVE:
        with pytest.raises(UnsupportedError, match=f"{NOT_NATIVE[number]} in .*layer"):
            model.export(path)
        return
    model.export(path, verbose=False)
    tmp_path.chmod(0o700)
    library = toolkit.load_native(path)
    assert not library.is_stateful or name.startswith("Random")
    rng = np.random.default_rng(0)
    inputs = [
        rng.normal(size=x.shape).astype(x.dtype) for x in tree.flatten(model.inputs)
    ]
    compiled = toolkit.function(lambda *xs: model(list(xs), training=False))
    expected = tree.flatten(compiled(*map(ops.convert_to_tensor, inputs)))
    predictions = tree.flatten(
        library.predict(inputs if len(inputs) > 1 else inputs[0])
    )
    for y, reference in zip(predictions, expected, strict=True):
        reference = ops.convert_to_numpy(reference)
        assert (y.shape, y.dtype) == (reference.shape, reference.dtype)
        assert y.tobytes() == reference.tobytes()


def _model_of(layer, shapes):
    """Return a model of one layer for batches of the row's size."""

    def symbols(shape):
        if isinstance(shape, list):
            return [symbols(s) for s in shape]
        return toolkit.Input(batch_shape=shape)

    inputs = [symbols(shape) for shape in shapes]
    return toolkit.Model(tree.flatten(inputs), layer(*inputs))


def test_embedding():
    arguments = {"input_dim": 5, "output_dim": 3, "mask_zero": True}
    check_layer(layers.Embedding, arguments, (4, 6), dtype="int32")


def test_every_layer_is_checked():
    public = {
        cls.__name__
        for cls in (getattr(layers, name) for name in layers.__all__)
        if inspect.isclass(cls) and issubclass(cls, Layer)
    }
    checked = {getattr(layers, name).__name__ for name, *_ in CASES}
    assert public - ELSEWHERE == checked
