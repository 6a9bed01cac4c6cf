"""Modules of Keras ops other than `keras.ops.numpy`, and their names."""

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
        bessel_j0 bessel_j1 bessel_k0 bessel_k0e bessel_k1 bessel_k1e bessel_y0
        bessel_y1 betainc cdist dawsn dct digamma erf erfc erfcinv erfinv expint
        extract_sequences fft fft2 fresnel_cos fresnel_sin i0e i1 i1e idct ifft2 igamma
        igammac in_top_k irfft istft lgamma logdet logsumexp ndtri polygamma rfft rsqrt
        segment_max segment_min segment_prod segment_sum spence stft top_k
        view_as_complex view_as_real zeta
    """.split(),
    "linalg": """
        cholesky cholesky_inverse det eig eigh expm inv jvp logm lstsq lu_factor
        matrix_rank norm pinv qr solve solve_triangular sqrtm svd
    """.split(),
    "einops": ["rearrange"],
}
MODULE_OF = {
    name: f"keras.src.ops.{module}"
    for module, names in _OTHERS.items()
    for name in names
}
