"""Public tensor functions, with the names and signatures of `keras.ops`.

One block of names per file. At the end, operators are installed on Tensor, KerasTensor
and Variable: `x + y` is `ops.add(x, y)`.
"""

import toolkit.ops.shards
from toolkit.core.module_changes import observe_modules as _observe_modules
from toolkit.definitions.namespaces import lazy_namespace
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
from toolkit.ops.arrange import (
    append,
    array_split,
    diag,
    diagflat,
    diagonal,
    dsplit,
    dstack,
    fliplr,
    flipud,
    hsplit,
    hstack,
    meshgrid,
    repeat,
    roll,
    rot90,
    tile,
    vander,
    vsplit,
    vstack,
)
from toolkit.ops.associative import associative_scan
from toolkit.ops.attention import dot_product_attention
from toolkit.ops.bessel import (
    bessel_j0,
    bessel_j1,
    bessel_k0,
    bessel_k0e,
    bessel_k1,
    bessel_k1e,
    bessel_y0,
    bessel_y1,
    i0e,
    i1,
    i1e,
)
from toolkit.ops.bits import (
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    left_shift,
    nextafter,
    right_shift,
    view,
)
from toolkit.ops.blocks import depth_to_space, fold, space_to_depth, unfold
from toolkit.ops.box import slice, slice_update
from toolkit.ops.complex import (
    angle,
    conj,
    conjugate,
    imag,
    isreal,
    polar,
    real,
    view_as_complex,
    view_as_real,
)
from toolkit.ops.contract import cross, dot, inner, kron, matmul, outer, tensordot, vdot
from toolkit.ops.conv import conv, conv_transpose, depthwise_conv, separable_conv
from toolkit.ops.core import (
    array,
    convert_to_numpy,
    convert_to_tensor,
    copy,
    dtype,
    is_tensor,
    ndim,
    shape,
    size,
)
from toolkit.ops.cosine_transforms import dct, idct
from toolkit.ops.creation import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    geomspace,
    identity,
    linspace,
    logspace,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    zeros,
    zeros_like,
)
from toolkit.ops.einsum import einsum
from toolkit.ops.elementwise import (
    add,
    ceil,
    divide,
    equal,
    floor,
    greater,
    greater_equal,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    nonzero,
    not_equal,
    sign,
    subtract,
    true_divide,
    where,
)
from toolkit.ops.encode import (
    bincount,
    multi_hot,
    one_hot,
    segment_max,
    segment_min,
    segment_prod,
    segment_sum,
    unravel_index,
)
from toolkit.ops.fourier import fft, fft2, ifft2, irfft, istft, rfft, stft
from toolkit.ops.gamma import digamma, lgamma, polygamma, zeta
from toolkit.ops.getitem import get_item
from toolkit.ops.incomplete import betainc, igamma, igammac
from toolkit.ops.index import scatter, scatter_update, take, take_along_axis
from toolkit.ops.integrals import dawsn, expint, fresnel_cos, fresnel_sin, spence
from toolkit.ops.linalg import (
    cholesky,
    cholesky_inverse,
    det,
    eig,
    eigh,
    inv,
    logdet,
    lstsq,
    lu_factor,
    matrix_rank,
    norm,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
)
from toolkit.ops.loss import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from toolkit.ops.matrix_functions import expm, logm, sqrtm
from toolkit.ops.nan import (
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmedian,
    nanmin,
    nanpercentile,
    nanprod,
    nanquantile,
    nanstd,
    nansum,
    nanvar,
)
from toolkit.ops.normalization import (
    batch_normalization,
    layer_normalization,
    moments,
    normalize,
    psnr,
    rms_normalization,
)
from toolkit.ops.numeric import (
    abs,
    absolute,
    cast,
    clip,
    floor_divide,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    mod,
    negative,
    reciprocal,
    remainder,
    round,
    saturate_cast,
    square,
    stop_gradient,
    trunc,
)
from toolkit.ops.numpy_like import (
    allclose,
    cbrt,
    deg2rad,
    divide_no_nan,
    exp2,
    fabs,
    fmax,
    fmin,
    fmod,
    gcd,
    heaviside,
    hypot,
    isclose,
    isneginf,
    isposinf,
    lcm,
    ldexp,
    log2,
    log10,
    logaddexp,
    logaddexp2,
    nan_to_num,
    rad2deg,
    select,
    signbit,
)
from toolkit.ops.padding import pad
from toolkit.ops.pool import (
    adaptive_average_pool,
    adaptive_max_pool,
    average_pool,
    max_pool,
)
from toolkit.ops.quantiles import erfcinv, ndtri
from toolkit.ops.rearrange import rearrange
from toolkit.ops.reduce import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumprod,
    cumsum,
    logsumexp,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from toolkit.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    flip,
    moveaxis,
    ravel,
    reshape,
    split,
    squeeze,
    stack,
    swapaxes,
    transpose,
    unstack,
)
from toolkit.ops.softmax import log_softmax, softmax, sparsemax
from toolkit.ops.sort import (
    argpartition,
    argsort,
    digitize,
    in_top_k,
    isin,
    searchsorted,
    sort,
    top_k,
    unique,
)
from toolkit.ops.special import erfc, i0, sinc
from toolkit.ops.statistics import (
    average,
    cdist,
    corrcoef,
    correlate,
    diff,
    extract_sequences,
    histogram,
    median,
    percentile,
    ptp,
    quantile,
    trace,
    trapezoid,
)
from toolkit.ops.transcendental import (
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    cos,
    cosh,
    erf,
    erfinv,
    exp,
    expm1,
    log,
    log1p,
    power,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from toolkit.ops.windows import bartlett, blackman, hamming, hanning, kaiser

# isort: off
from toolkit.ops import image, linalg, nn, numpy
from toolkit.ops import (
    frequent_calls as _frequent_calls,
    operators as _operators,
    quantize as _quantize,
)
# isort: on

# Functions of `keras.ops` that modules of higher levels define.
__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        "toolkit.autodiff.custom_gradient": ["custom_gradient"],
        "toolkit.autodiff.jvp": ["jvp"],
        "toolkit.control_flow.branches": ["cond", "switch"],
        "toolkit.control_flow.loops": (
            *("fori_loop", "map", "scan", "vectorized_map", "while_loop"),
        ),
        "toolkit.control_flow.vectorize": ["vectorize"],
        "toolkit.losses.ctc": ["ctc_decode", "ctc_loss"],
    },
)

_operators.install_operators()
_frequent_calls.install_programs()
_observe_modules()  # the user can replace a function before the first replay
