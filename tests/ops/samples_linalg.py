"""Samples of linear algebra and of Fourier transforms."""

import numpy as np

from tests.ops.table import sample, uniform


def matrices(*shape, shift=0.0):
    """Return well-conditioned matrices: random ones with a `shift` of the diagonal."""
    return uniform(-1, 1, shape) + shift * np.eye(*shape[-2:])


def positive(*shape):
    """Return positive definite matrices."""
    x = matrices(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


def row(name, *inputs, **options):
    """Return a row with the tolerance of a chain of sums, without half precision."""
    return sample(name, *inputs, half=False, tolerance=50, **options)


def by_inverse(a, b):
    return np.linalg.inv(a) @ b


def lu(x):
    """Apply the algorithm of LAPACK, row by row."""
    x, pivots = np.array(x, np.float64), []
    for i in range(min(x.shape)):
        j = i + int(np.argmax(np.abs(x[i:, i])))
        pivots.append(j)
        x[[i, j]] = x[[j, i]]
        x[i + 1 :, i] /= x[i, i]
        x[i + 1 :, i + 1 :] -= np.outer(x[i + 1 :, i], x[i, i + 1 :])
    return x, np.array(pivots, np.int32)


def stacked(function):
    """Apply a function of one matrix to each matrix of a stack."""
    return lambda x: tuple(map(np.stack, zip(*map(function, x), strict=True)))


FACTORS = [
    row("cholesky", positive(3, 3), numpy=np.linalg.cholesky),
    row("cholesky", positive(2, 4, 4), numpy=np.linalg.cholesky),
    row(
        "cholesky",
        positive(3, 3),
        numpy=lambda x: np.linalg.cholesky(x).T,
        upper=True,
    ),
    row(
        "cholesky_inverse",
        matrices(3, 3, shift=2.0),
        numpy=lambda x: np.linalg.inv(np.tril(x) @ np.tril(x).T),
    ),
    row(
        "cholesky_inverse",
        matrices(2, 3, 3, shift=2.0),
        numpy=lambda x: np.linalg.inv(np.swapaxes(np.triu(x), 1, 2) @ np.triu(x)),
        upper=True,
    ),
    row("lu_factor", matrices(4, 4), numpy=lu),
    row("lu_factor", matrices(2, 3, 3), numpy=stacked(lu)),
    row("lu_factor", matrices(5, 3), numpy=lu),
    row("lu_factor", matrices(2, 3, 5), numpy=stacked(lu)),
    *[
        row("qr", matrices(*shape), numpy=np.linalg.qr)
        for shape in ((3, 3), (4, 2), (2, 2, 4))
    ],
    row(
        "qr",
        matrices(4, 2),
        numpy=lambda x: np.linalg.qr(x, "complete"),
        mode="complete",
        order=0,
    ),
    row("qr", matrices(2, 4), numpy=np.linalg.qr, mode="complete"),
    *[
        row(
            "svd",
            matrices(*shape),
            numpy=lambda x, f=full: np.linalg.svd(x, full_matrices=f),
            full_matrices=full,
        )
        for shape, full in (((3, 3), True), ((4, 2), False), ((2, 2, 4), False))
    ],
    row("svd", matrices(2, 4), numpy=np.linalg.svd, order=0),
    row(
        "svd",
        matrices(2, 4),
        numpy=lambda x: np.linalg.svd(x, compute_uv=False),
        compute_uv=False,
    ),
    row("eigh", positive(3, 3), numpy=lambda x: tuple(np.linalg.eigh(x))),
    row("eigh", positive(2, 4, 4), numpy=lambda x: tuple(np.linalg.eigh(x))),
]

SYSTEMS = [
    row("inv", matrices(3, 3, shift=2.0), numpy=np.linalg.inv),
    row("inv", matrices(2, 3, 3, shift=2.0), numpy=np.linalg.inv),
    row("det", matrices(2, 3, 3), numpy=np.linalg.det),
    row("slogdet", matrices(2, 3, 3), numpy=lambda x: tuple(np.linalg.slogdet(x))),
    row("logdet", positive(3, 3), numpy=lambda x: np.log(np.linalg.det(x))),
    row("solve", matrices(3, 3, shift=2.0), uniform(-1, 1, 3), numpy=by_inverse),
    row("solve", matrices(3, 3, shift=2.0), matrices(3, 2), numpy=by_inverse),
    row("solve", matrices(2, 3, 3, shift=2.0), matrices(2, 3, 2), numpy=by_inverse),
    row(
        "solve",
        matrices(2, 3, 3, shift=2.0),
        uniform(-1, 1, (2, 3)),
        numpy=lambda a, b: by_inverse(a, b[..., None])[..., 0],
    ),
    row(
        "solve_triangular",
        matrices(3, 3, shift=2.0),
        matrices(3, 2),
        numpy=lambda a, b: by_inverse(np.triu(a), b),
    ),
    row(
        "solve_triangular",
        matrices(2, 3, 3, shift=2.0),
        uniform(-1, 1, (2, 3)),
        numpy=lambda a, b: by_inverse(np.tril(a), b[..., None])[..., 0],
        lower=True,
    ),
    row("pinv", matrices(4, 2), numpy=np.linalg.pinv),
    row("pinv", matrices(2, 2, 3), numpy=np.linalg.pinv, rcond=1e-3),
    row(
        "lstsq",
        matrices(4, 2),
        uniform(-1, 1, 4),
        numpy=lambda a, b: np.linalg.lstsq(a, b)[0],
    ),
    row(
        "lstsq",
        matrices(2, 4),
        matrices(2, 3),
        numpy=lambda a, b: np.linalg.lstsq(a, b)[0],
    ),
    row(
        "matrix_rank",
        np.stack([np.eye(3), np.ones((3, 3)), np.zeros((3, 3))]),
        numpy=np.linalg.matrix_rank,
    ),
    row(
        "matrix_rank",
        np.diag([1.0, 0.1, 0.01]),
        numpy=lambda x: np.array(2),
        tol=0.05,
    ),
]


def norms(shape, axis, orders):
    return [
        row(
            "norm",
            uniform(0.3, 2, shape),
            numpy=lambda x, o=order, k=keepdims: np.asarray(
                np.linalg.norm(x, o, axis, k)
            ),
            ord=order,
            axis=axis,
            keepdims=keepdims,
        )
        for order, keepdims in orders
    ]


NORMS = [
    row("norm", uniform(0.3, 2, (2, 3, 2)), numpy=lambda x: np.sqrt(np.sum(x * x))),
    *norms((5,), None, [(np.inf, False), (-np.inf, True), (0, False), (3, False)]),
    *norms((3, 4), -1, [(None, False), (1, True), (2, False), (-1, False)]),
    *norms((3, 4), None, [("fro", False), ("nuc", True), (2, False), (-2, False)]),
    *norms((3, 4), (1, 0), [(1, False), (-1, True), (np.inf, False)]),
    *norms((2, 3, 4), (2, 0), [("nuc", True), (-np.inf, False), ("fro", True)]),
]

# --- Fourier transforms ---------------------------------------------------------------


def real_and_imaginary(z):
    return z.real, z.imag


def transform(name, *shape):
    """Return a row of a transform of a complex tensor."""
    x = (uniform(-1, 1, shape), uniform(-1, 1, shape))
    reference = getattr(np.fft, name)
    return row(name, x, numpy=lambda x: real_and_imaginary(reference(x[0] + 1j * x[1])))


def short_time_spectra(x, window, stride, fft_length, center):
    """Return the spectra of consecutive frames of x."""
    if center:
        x = np.pad(x, fft_length // 2, mode="reflect")
    low = (fft_length - len(window)) // 2
    window = np.pad(window, (low, fft_length - len(window) - low))
    starts = range(0, len(x) - fft_length + 1, stride)
    frames = [x[i : i + fft_length] * window for i in starts]
    return real_and_imaginary(np.fft.rfft(np.stack(frames)))


def hann(n, offset=0.5):
    return offset - (1 - offset) * np.cos(2 * np.pi * np.arange(n) / n)


_signal = uniform(-1, 1, 21)
FOURIER = [
    *[transform("fft", *shape) for shape in ((8,), (2, 5), (3, 1))],
    *[transform(name, 2, 4, 3) for name in ("fft2", "ifft2")],
    *[
        row(
            "rfft",
            uniform(-1, 1, shape),
            numpy=lambda x, n=n: real_and_imaginary(np.fft.rfft(x, n)),
            fft_length=n,
        )
        for shape, n in (((8,), None), ((2, 5), None), ((2, 5), 4), ((2, 5), 9))
    ],
    *[
        row(
            "irfft",
            (uniform(-1, 1, (2, 5)), uniform(-1, 1, (2, 5))),
            numpy=lambda x, n=n: np.fft.irfft(x[0] + 1j * x[1], n),
            fft_length=n,
        )
        for n in (None, 9, 6, 13)
    ],
    *[
        row(
            "stft",
            _signal,
            length,
            stride,
            fft_length,
            numpy=lambda x, n, s, f, w=weights, c=center: short_time_spectra(
                x, w, s, f, c
            ),
            window=window,
            center=center,
        )
        for length, stride, fft_length, window, weights, center in (
            (8, 4, 8, "hann", hann(8), True),
            (5, 3, 8, "hamming", hann(5, 0.54), False),
            (6, 2, 7, None, np.ones(7), True),
            (4, 2, 6, np.arange(1.0, 5.0), np.arange(1.0, 5.0), True),
        )
    ],
    *[
        row(
            "istft",
            short_time_spectra(_signal, weights, stride, fft_length, center),
            len(weights),
            stride,
            fft_length,
            numpy=lambda x, *sizes, n=expected: _signal[:n],
            length=length,
            window=window,
            center=center,
        )
        for stride, fft_length, window, weights, center, length, expected in (
            (4, 8, "hann", hann(8), True, None, 20),
            (6, 6, None, np.ones(6), False, 12, 12),
            (2, 6, "hamming", hann(5, 0.54), True, 20, 20),
        )
    ],
]

SAMPLES = [*FOURIER, *FACTORS, *SYSTEMS, *NORMS]
