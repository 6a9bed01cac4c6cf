"""Layers, with the names and arguments of `keras.layers`."""

from typing import Any

from toolkit import serialization
from toolkit.errors import ArgumentError
from toolkit.layers.activation import (
    ELU,
    Activation,
    ActivityRegularization,
    LeakyReLU,
    PReLU,
    ReLU,
    Rescaling,
    Softmax,
)
from toolkit.layers.adaptive_pooling import (
    AdaptiveAveragePooling1D,
    AdaptiveAveragePooling2D,
    AdaptiveAveragePooling3D,
    AdaptiveMaxPooling1D,
    AdaptiveMaxPooling2D,
    AdaptiveMaxPooling3D,
)
from toolkit.layers.attention import MultiHeadAttention
from toolkit.layers.basic import Identity, Lambda, Masking
from toolkit.layers.batch_normalization import BatchNormalization
from toolkit.layers.cells import GRUCell, LSTMCell, SimpleRNNCell
from toolkit.layers.conv import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    Convolution1D,
    Convolution1DTranspose,
    Convolution2D,
    Convolution2DTranspose,
    Convolution3D,
    Convolution3DTranspose,
)
from toolkit.layers.conv_lstm import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from toolkit.layers.core import Dense, EinsumDense, Embedding, ReversibleEmbedding
from toolkit.layers.depthwise import (
    DepthwiseConv1D,
    DepthwiseConv2D,
    SeparableConv1D,
    SeparableConv2D,
    SeparableConvolution1D,
    SeparableConvolution2D,
)
from toolkit.layers.grouped_attention import GroupedQueryAttention
from toolkit.layers.input_layer import Input, InputLayer
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.merging import (
    Add,
    Average,
    Concatenate,
    Dot,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
    add,
    average,
    concatenate,
    dot,
    maximum,
    minimum,
    multiply,
    subtract,
)
from toolkit.layers.normalization import (
    GroupNormalization,
    LayerNormalization,
    RMSNormalization,
    UnitNormalization,
)
from toolkit.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    AveragePooling3D,
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalAveragePooling3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    GlobalMaxPooling3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    MaxPooling1D,
    MaxPooling2D,
    MaxPooling3D,
)
from toolkit.layers.preprocessing.affine import (
    RandomRotation,
    RandomShear,
    RandomTranslation,
    RandomZoom,
)
from toolkit.layers.preprocessing.colors import (
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
    RandomGrayscale,
    RandomHue,
    RandomInvert,
    RandomSaturation,
)
from toolkit.layers.preprocessing.cropping import CenterCrop, RandomCrop
from toolkit.layers.preprocessing.discretization import Discretization
from toolkit.layers.preprocessing.encoding import CategoryEncoding
from toolkit.layers.preprocessing.erasing import MaxNumBoundingBoxes, RandomErasing
from toolkit.layers.preprocessing.hashing import HashedCrossing, Hashing
from toolkit.layers.preprocessing.histograms import (
    AutoContrast,
    ContrastLimitedAdaptiveHistogramEqualization,
    Equalization,
)
from toolkit.layers.preprocessing.lookup import IntegerLookup, StringLookup
from toolkit.layers.preprocessing.mixing import CutMix, MixUp
from toolkit.layers.preprocessing.normalization import Normalization
from toolkit.layers.preprocessing.pipeline import Pipeline
from toolkit.layers.preprocessing.recipes import AugMix, RandAugment, RandomColorJitter
from toolkit.layers.preprocessing.resizing import Resizing
from toolkit.layers.preprocessing.spectrograms import MelSpectrogram, STFTSpectrogram
from toolkit.layers.preprocessing.text import TextVectorization
from toolkit.layers.preprocessing.tones import (
    RandomGaussianBlur,
    RandomPosterization,
    RandomSharpness,
    Solarization,
)
from toolkit.layers.preprocessing.warps import (
    RandomElasticTransform,
    RandomFlip,
    RandomPerspective,
)
from toolkit.layers.recurrent import GRU, LSTM, SimpleRNN
from toolkit.layers.regularization import (
    AlphaDropout,
    Dropout,
    GaussianDropout,
    GaussianNoise,
    SpatialDropout1D,
    SpatialDropout2D,
    SpatialDropout3D,
)
from toolkit.layers.reshaping import Flatten, Permute, RepeatVector, Reshape
from toolkit.layers.rnn import RNN, StackedRNNCells
from toolkit.layers.scoring import AdditiveAttention, Attention
from toolkit.layers.spatial import (
    Cropping1D,
    Cropping2D,
    Cropping3D,
    UpSampling1D,
    UpSampling2D,
    UpSampling3D,
    ZeroPadding1D,
    ZeroPadding2D,
    ZeroPadding3D,
)
from toolkit.layers.spectral import SpectralNormalization
from toolkit.layers.wrappers import Bidirectional, TimeDistributed, Wrapper

GroupQueryAttention = GroupedQueryAttention


def serialize(layer: Any) -> Any:
    """The layer as a dict of plain values that `deserialize` reads."""
    return serialization.serialize_keras_object(layer)


def deserialize(config: Any, custom_objects: Any = None) -> Layer:
    """The layer that `serialize` described, unbuilt.

    Raises:
        ArgumentError: if the config describes something else.
    """
    layer = serialization.deserialize_keras_object(config, custom_objects)
    if not isinstance(layer, Layer):
        raise ArgumentError(
            f"layers.deserialize: expected the config of a layer; received {config!r}"
        )
    return layer
