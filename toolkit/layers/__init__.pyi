# Written by scripts/write_stubs; do not edit.
from toolkit.layers.activation import (
    ELU as ELU,
    Activation as Activation,
    ActivityRegularization as ActivityRegularization,
    LeakyReLU as LeakyReLU,
    PReLU as PReLU,
    ReLU as ReLU,
    Rescaling as Rescaling,
    Softmax as Softmax,
    ThresholdedReLU as ThresholdedReLU,
)
from toolkit.layers.adaptive_pooling import (
    AdaptiveAveragePooling1D as AdaptiveAveragePooling1D,
    AdaptiveAveragePooling2D as AdaptiveAveragePooling2D,
    AdaptiveAveragePooling3D as AdaptiveAveragePooling3D,
    AdaptiveMaxPooling1D as AdaptiveMaxPooling1D,
    AdaptiveMaxPooling2D as AdaptiveMaxPooling2D,
    AdaptiveMaxPooling3D as AdaptiveMaxPooling3D,
)
from toolkit.layers.attention import MultiHeadAttention as MultiHeadAttention
from toolkit.layers.basic import (
    Identity as Identity,
    Lambda as Lambda,
    Masking as Masking,
)
from toolkit.layers.batch_normalization import BatchNormalization as BatchNormalization
from toolkit.layers.cell_stacks import StackedRNNCells as StackedRNNCells
from toolkit.layers.cells import (
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    SimpleRNNCell as SimpleRNNCell,
)
from toolkit.layers.conv import (
    Conv1D as Conv1D,
    Conv1DTranspose as Conv1DTranspose,
    Conv2D as Conv2D,
    Conv2DTranspose as Conv2DTranspose,
    Conv3D as Conv3D,
    Conv3DTranspose as Conv3DTranspose,
    Convolution1D as Convolution1D,
    Convolution1DTranspose as Convolution1DTranspose,
    Convolution2D as Convolution2D,
    Convolution2DTranspose as Convolution2DTranspose,
    Convolution3D as Convolution3D,
    Convolution3DTranspose as Convolution3DTranspose,
)
from toolkit.layers.conv_lstm import (
    ConvLSTM1D as ConvLSTM1D,
    ConvLSTM2D as ConvLSTM2D,
    ConvLSTM3D as ConvLSTM3D,
)
from toolkit.layers.dense import Dense as Dense
from toolkit.layers.depthwise import (
    DepthwiseConv1D as DepthwiseConv1D,
    DepthwiseConv2D as DepthwiseConv2D,
    SeparableConv1D as SeparableConv1D,
    SeparableConv2D as SeparableConv2D,
    SeparableConvolution1D as SeparableConvolution1D,
    SeparableConvolution2D as SeparableConvolution2D,
)
from toolkit.layers.dot_attention import (
    AdditiveAttention as AdditiveAttention,
    Attention as Attention,
)
from toolkit.layers.einsum_dense import EinsumDense as EinsumDense
from toolkit.layers.embedding import (
    Embedding as Embedding,
    ReversibleEmbedding as ReversibleEmbedding,
)
from toolkit.layers.grouped_attention import (
    GroupedQueryAttention as GroupedQueryAttention,
    GroupQueryAttention as GroupQueryAttention,
)
from toolkit.layers.input_layer import Input as Input, InputLayer as InputLayer
from toolkit.layers.input_spec import InputSpec as InputSpec
from toolkit.layers.layer import Layer as Layer
from toolkit.layers.locally_connected import (
    LocallyConnected1D as LocallyConnected1D,
    LocallyConnected2D as LocallyConnected2D,
)
from toolkit.layers.merging import (
    Add as Add,
    Average as Average,
    Concatenate as Concatenate,
    Dot as Dot,
    Maximum as Maximum,
    Minimum as Minimum,
    Multiply as Multiply,
    Subtract as Subtract,
    add as add,
    average as average,
    concatenate as concatenate,
    dot as dot,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    subtract as subtract,
)
from toolkit.layers.normalization import (
    GroupNormalization as GroupNormalization,
    LayerNormalization as LayerNormalization,
    RMSNormalization as RMSNormalization,
    UnitNormalization as UnitNormalization,
)
from toolkit.layers.padding import (
    Cropping1D as Cropping1D,
    Cropping2D as Cropping2D,
    Cropping3D as Cropping3D,
    UpSampling1D as UpSampling1D,
    UpSampling2D as UpSampling2D,
    UpSampling3D as UpSampling3D,
    ZeroPadding1D as ZeroPadding1D,
    ZeroPadding2D as ZeroPadding2D,
    ZeroPadding3D as ZeroPadding3D,
)
from toolkit.layers.pooling import (
    AveragePooling1D as AveragePooling1D,
    AveragePooling2D as AveragePooling2D,
    AveragePooling3D as AveragePooling3D,
    AvgPool1D as AvgPool1D,
    AvgPool2D as AvgPool2D,
    AvgPool3D as AvgPool3D,
    GlobalAveragePooling1D as GlobalAveragePooling1D,
    GlobalAveragePooling2D as GlobalAveragePooling2D,
    GlobalAveragePooling3D as GlobalAveragePooling3D,
    GlobalAvgPool1D as GlobalAvgPool1D,
    GlobalAvgPool2D as GlobalAvgPool2D,
    GlobalAvgPool3D as GlobalAvgPool3D,
    GlobalMaxPool1D as GlobalMaxPool1D,
    GlobalMaxPool2D as GlobalMaxPool2D,
    GlobalMaxPool3D as GlobalMaxPool3D,
    GlobalMaxPooling1D as GlobalMaxPooling1D,
    GlobalMaxPooling2D as GlobalMaxPooling2D,
    GlobalMaxPooling3D as GlobalMaxPooling3D,
    MaxPool1D as MaxPool1D,
    MaxPool2D as MaxPool2D,
    MaxPool3D as MaxPool3D,
    MaxPooling1D as MaxPooling1D,
    MaxPooling2D as MaxPooling2D,
    MaxPooling3D as MaxPooling3D,
)
from toolkit.layers.preprocessing.affine import (
    RandomRotation as RandomRotation,
    RandomShear as RandomShear,
    RandomTranslation as RandomTranslation,
    RandomZoom as RandomZoom,
)
from toolkit.layers.preprocessing.augmentation_policies import (
    AugMix as AugMix,
    RandAugment as RandAugment,
    RandomColorJitter as RandomColorJitter,
)
from toolkit.layers.preprocessing.color_adjustments import (
    RandomBrightness as RandomBrightness,
    RandomColorDegeneration as RandomColorDegeneration,
    RandomContrast as RandomContrast,
    RandomGrayscale as RandomGrayscale,
    RandomHue as RandomHue,
    RandomInvert as RandomInvert,
    RandomSaturation as RandomSaturation,
)
from toolkit.layers.preprocessing.color_filters import (
    RandomGaussianBlur as RandomGaussianBlur,
    RandomPosterization as RandomPosterization,
    RandomSharpness as RandomSharpness,
    Solarization as Solarization,
)
from toolkit.layers.preprocessing.cropping import (
    CenterCrop as CenterCrop,
    RandomCrop as RandomCrop,
)
from toolkit.layers.preprocessing.discretization import Discretization as Discretization
from toolkit.layers.preprocessing.encoding import CategoryEncoding as CategoryEncoding
from toolkit.layers.preprocessing.erasing import (
    MaxNumBoundingBoxes as MaxNumBoundingBoxes,
    RandomErasing as RandomErasing,
)
from toolkit.layers.preprocessing.geometry import (
    RandomElasticTransform as RandomElasticTransform,
    RandomFlip as RandomFlip,
    RandomPerspective as RandomPerspective,
)
from toolkit.layers.preprocessing.hashing import (
    HashedCrossing as HashedCrossing,
    Hashing as Hashing,
)
from toolkit.layers.preprocessing.histograms import (
    AutoContrast as AutoContrast,
    ContrastLimitedAdaptiveHistogramEqualization as ContrastLimitedAdaptiveHistogramEqualization,
    Equalization as Equalization,
)
from toolkit.layers.preprocessing.lookup import (
    IntegerLookup as IntegerLookup,
    StringLookup as StringLookup,
)
from toolkit.layers.preprocessing.mixing import CutMix as CutMix, MixUp as MixUp
from toolkit.layers.preprocessing.normalization import Normalization as Normalization
from toolkit.layers.preprocessing.pipeline import Pipeline as Pipeline
from toolkit.layers.preprocessing.resizing import Resizing as Resizing
from toolkit.layers.preprocessing.spectrograms import (
    MelSpectrogram as MelSpectrogram,
    STFTSpectrogram as STFTSpectrogram,
)
from toolkit.layers.preprocessing.text import TextVectorization as TextVectorization
from toolkit.layers.recurrent import GRU as GRU, LSTM as LSTM, SimpleRNN as SimpleRNN
from toolkit.layers.regularization import (
    AlphaDropout as AlphaDropout,
    Dropout as Dropout,
    GaussianDropout as GaussianDropout,
    GaussianNoise as GaussianNoise,
    SpatialDropout1D as SpatialDropout1D,
    SpatialDropout2D as SpatialDropout2D,
    SpatialDropout3D as SpatialDropout3D,
)
from toolkit.layers.reshaping import (
    Flatten as Flatten,
    Permute as Permute,
    RepeatVector as RepeatVector,
    Reshape as Reshape,
)
from toolkit.layers.rnn import RNN as RNN
from toolkit.layers.serializing import (
    deserialize as deserialize,
    serialize as serialize,
)
from toolkit.layers.spectral_normalization import (
    SpectralNormalization as SpectralNormalization,
)
from toolkit.layers.wrappers import (
    Bidirectional as Bidirectional,
    TimeDistributed as TimeDistributed,
    Wrapper as Wrapper,
)

__all__ = [
    "Activation",
    "ActivityRegularization",
    "AdaptiveAveragePooling1D",
    "AdaptiveAveragePooling2D",
    "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D",
    "AdaptiveMaxPooling2D",
    "AdaptiveMaxPooling3D",
    "Add",
    "AdditiveAttention",
    "AlphaDropout",
    "Attention",
    "AugMix",
    "AutoContrast",
    "Average",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNormalization",
    "Bidirectional",
    "CategoryEncoding",
    "CenterCrop",
    "Concatenate",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    "Convolution1D",
    "Convolution1DTranspose",
    "Convolution2D",
    "Convolution2DTranspose",
    "Convolution3D",
    "Convolution3DTranspose",
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "CutMix",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "Discretization",
    "Dot",
    "Dropout",
    "ELU",
    "EinsumDense",
    "Embedding",
    "Equalization",
    "Flatten",
    "GRU",
    "GRUCell",
    "GaussianDropout",
    "GaussianNoise",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalAveragePooling3D",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "GlobalMaxPooling3D",
    "GroupNormalization",
    "GroupQueryAttention",
    "GroupedQueryAttention",
    "HashedCrossing",
    "Hashing",
    "Identity",
    "Input",
    "InputLayer",
    "InputSpec",
    "IntegerLookup",
    "LSTM",
    "LSTMCell",
    "Lambda",
    "Layer",
    "LayerNormalization",
    "LeakyReLU",
    "LocallyConnected1D",
    "LocallyConnected2D",
    "Masking",
    "MaxNumBoundingBoxes",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "Maximum",
    "MelSpectrogram",
    "Minimum",
    "MixUp",
    "MultiHeadAttention",
    "Multiply",
    "Normalization",
    "PReLU",
    "Permute",
    "Pipeline",
    "RMSNormalization",
    "RNN",
    "RandAugment",
    "RandomBrightness",
    "RandomColorDegeneration",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomElasticTransform",
    "RandomErasing",
    "RandomFlip",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPerspective",
    "RandomPosterization",
    "RandomRotation",
    "RandomSaturation",
    "RandomSharpness",
    "RandomShear",
    "RandomTranslation",
    "RandomZoom",
    "ReLU",
    "RepeatVector",
    "Rescaling",
    "Reshape",
    "Resizing",
    "ReversibleEmbedding",
    "STFTSpectrogram",
    "SeparableConv1D",
    "SeparableConv2D",
    "SeparableConvolution1D",
    "SeparableConvolution2D",
    "SimpleRNN",
    "SimpleRNNCell",
    "Softmax",
    "Solarization",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "SpectralNormalization",
    "StackedRNNCells",
    "StringLookup",
    "Subtract",
    "TextVectorization",
    "ThresholdedReLU",
    "TimeDistributed",
    "UnitNormalization",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "Wrapper",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
    "add",
    "average",
    "concatenate",
    "deserialize",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "serialize",
    "subtract",
]
