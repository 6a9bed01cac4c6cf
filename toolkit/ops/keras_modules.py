"""Keras's modules of ops besides `keras.ops.numpy`, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.ops import nn

_OTHERS: dict[str, Sequence[str]] = {
    "nn": nn.__all__,
    "core": """
        associative_scan cast cond convert_to_numpy convert_to_tensor custom_gradient
        dtype fori_loop is_tensor map saturate_cast scan scatter scatter_update shape
        slice slice_update stop_gradient switch unstack vectorized_map while_loop
    """.split(),
    "math": """
        cdist erf erfc erfinv extract_sequences fft fft2 ifft2 in_top_k irfft istft
        logdet logsumexp rfft rsqrt segment_max segment_min segment_prod segment_sum
        stft top_k view_as_complex view_as_real
    """.split(),
    "linalg": """
        cholesky cholesky_inverse det eig eigh inv jvp lstsq lu_factor matrix_rank norm
        pinv qr solve solve_triangular svd
    """.split(),
    "einops": ["rearrange"],
}
MODULE_OF = {
    name: f"keras.src.ops.{module}"
    for module, names in _OTHERS.items()
    for name in names
}
