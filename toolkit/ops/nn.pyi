# Written by scripts/write_stubs; do not edit.
from toolkit.losses.ctc import ctc_decode as ctc_decode, ctc_loss as ctc_loss
from toolkit.ops.activation import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_shrink as hard_shrink,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    leaky_relu as leaky_relu,
    log_sigmoid as log_sigmoid,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    silu as silu,
    soft_shrink as soft_shrink,
    softplus as softplus,
    softsign as softsign,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    squareplus as squareplus,
    swish as swish,
    tanh_shrink as tanh_shrink,
    threshold as threshold,
)
from toolkit.ops.attention import dot_product_attention as dot_product_attention
from toolkit.ops.blocks import (
    depth_to_space as depth_to_space,
    fold as fold,
    space_to_depth as space_to_depth,
    unfold as unfold,
)
from toolkit.ops.complex import polar as polar
from toolkit.ops.conv import (
    conv as conv,
    conv_transpose as conv_transpose,
    depthwise_conv as depthwise_conv,
    separable_conv as separable_conv,
)
from toolkit.ops.elementwise import sigmoid as sigmoid
from toolkit.ops.encode import multi_hot as multi_hot, one_hot as one_hot
from toolkit.ops.loss import (
    binary_crossentropy as binary_crossentropy,
    categorical_crossentropy as categorical_crossentropy,
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from toolkit.ops.normalization import (
    batch_normalization as batch_normalization,
    layer_normalization as layer_normalization,
    moments as moments,
    normalize as normalize,
    psnr as psnr,
    rms_normalization as rms_normalization,
)
from toolkit.ops.pool import (
    adaptive_average_pool as adaptive_average_pool,
    adaptive_max_pool as adaptive_max_pool,
    average_pool as average_pool,
    max_pool as max_pool,
)
from toolkit.ops.softmax import (
    log_softmax as log_softmax,
    softmax as softmax,
    sparsemax as sparsemax,
)
