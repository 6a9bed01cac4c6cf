"""The namespace `keras.ops.nn`: what neural networks are made of."""

from toolkit.namespaces import on_first_use
from toolkit.ops.activation import (
    celu,
    elu,
    gelu,
    glu,
    hard_shrink,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    relu,
    relu6,
    selu,
    silu,
    soft_shrink,
    softplus,
    softsign,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
    tanh_shrink,
    threshold,
)
from toolkit.ops.attention import dot_product_attention
from toolkit.ops.blocks import depth_to_space, fold, space_to_depth, unfold
from toolkit.ops.complex import polar
from toolkit.ops.conv import conv, conv_transpose, depthwise_conv, separable_conv
from toolkit.ops.elementwise import sigmoid
from toolkit.ops.encode import multi_hot, one_hot
from toolkit.ops.loss import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from toolkit.ops.normalization import (
    batch_normalization,
    layer_normalization,
    moments,
    normalize,
    psnr,
    rms_normalization,
)
from toolkit.ops.pool import (
    adaptive_average_pool,
    adaptive_max_pool,
    average_pool,
    max_pool,
)
from toolkit.ops.softmax import log_softmax, softmax, sparsemax

# They are defined on a higher level.
__getattr__, __dir__ = on_first_use(
    __name__, {"toolkit.losses.ctc": ["ctc_decode", "ctc_loss"]}
)
