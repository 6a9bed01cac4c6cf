"""Window functions for signals, and kernels of short-time Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError, unknown_choice
from toolkit.initializers.base import Initializer, checked_shape
from toolkit.reading.budget import check_temporary
from toolkit.type_aliases import DTypeLike, Shape, TensorLike

Array = np.ndarray

# Sums of cosines: the factors of cos(0), cos(pi t), cos(2 pi t), ... for t in [-1, 1].
# Harris, On the Use of Windows for Harmonic Analysis (1978); Heinzel et al. (2002).
_COSINES = {
    "blackman": (0.42, 0.5, 0.08),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
    "boxcar": (1.0,),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
    "hamming": (0.54, 0.46),
    "hann": (0.5, 0.5),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
}


def _sum_of_cosines(t: Array, factors: tuple[float, ...]) -> Array:
    return sum(a * np.cos(k * np.pi * t) for k, a in enumerate(factors))  # type: ignore[return-value]


def _parzen(u: Array) -> Array:
    inner = 1 - 6 * u**2 * (1 - u)
    return np.where(u <= (1 - 1 / len(u)) / 2, inner, 2 * (1 - u) ** 3)


def _taylor(t: Array) -> Array:
    """Return a Taylor window: side lobes 30 dB lower, 3 of nearly equal height."""
    lobes = np.arange(1, 4)
    a = (np.arccosh(10**1.5) / np.pi) ** 2
    width = 16 / (a + 3.5**2)
    factors = [1.0]
    for m in lobes:
        above = np.prod(1 - m**2 / width / (a + (lobes - 0.5) ** 2))
        below = np.prod(1 - m**2 / lobes[lobes != m] ** 2)
        factors.append(-((-1) ** m) * above / below)
    return _sum_of_cosines(t, tuple(factors)) / sum(factors)


# Arguments: t in [-1, 1], distances in points from the middle, the number of points.
_OTHERS: dict[str, Callable[[Array, Array, int], Array]] = {
    "bartlett": lambda t, x, n: 1 - abs(t),
    "barthann": lambda t, x, n: 0.62 - 0.24 * abs(t) + 0.38 * np.cos(np.pi * t),
    "bohman": lambda t, x, n: (
        (1 - abs(t)) * np.cos(np.pi * t) + np.sin(np.pi * abs(t)) / np.pi
    ),
    "cosine": lambda t, x, n: np.cos(np.pi * x / n),
    "exponential": lambda t, x, n: np.exp(-abs(x)),
    "lanczos": lambda t, x, n: np.sinc(t),
    "parzen": lambda t, x, n: _parzen(abs(x) * 2 / n),
    "taylor": lambda t, x, n: _taylor(2 * x / n),
    "triang": lambda t, x, n: 1 - abs(x) * 2 / (n + n % 2),
    "tukey": lambda t, x, n: 0.5 + 0.5 * np.cos(np.pi * np.clip(2 * abs(t) - 1, 0, 1)),
}


def check_window(name: str) -> None:
    """Raise if no window has that name."""
    if name not in _COSINES and name not in _OTHERS:
        raise unknown_choice("window", name, sorted((*_COSINES, *_OTHERS)))


def window_of(name: str, length: int, periodic: bool = False) -> Array:
    """Return window weights (length,) in float64 that decrease towards both ends.

    Args:
        name: a name in scipy.signal.windows of a window without parameters.
        length: the number of points.
        periodic: whether the window is periodic: the window of length + 1 without its
            last point.
    """
    check_window(name)
    if length == 1:
        return np.ones(1)
    check_temporary(8 * 8 * length, f"a window of {length:,} samples")
    n = length + periodic
    distances = np.arange(n) - (n - 1) / 2
    t = distances * 2 / (n - 1)
    if name in _COSINES:
        weights = _sum_of_cosines(t, _COSINES[name])
    else:
        weights = _OTHERS[name](t, distances, n)
    return (weights * np.ones(n))[:length]


class STFT(Initializer):
    """Kernels of a convolution that computes short-time Fourier transforms.

    `kernel[t, 0, k] = window[t] * cos(-2 pi t k / n)`, or sin, where the shape of the
    kernel is (window's length, 1, n // 2 + 1).

    Args:
        side: "real": cosines; "imag": sines.
        window: a name as in scipy.signal.windows, an array of weights, or None.
        scaling: "density": divided by the root of the sum of squares of the window;
            "spectrum": by the sum of its absolute values; None: not at all.
        periodic: whether a window that is given by name is periodic.

    Example:
        >>> import toolkit
        >>> toolkit.initializers.STFT("real", "hann")((128, 1, 65)).shape
        (128, 1, 65)
    """

    def __init__(
        self,
        side: str = "real",
        window: TensorLike = "hann",
        scaling: str | None = "density",
        periodic: bool = False,
    ) -> None:
        if side not in ("real", "imag"):
            raise unknown_choice("STFT: side", side, ["imag", "real"])
        if isinstance(window, str):
            check_window(window)
        check_scaling("STFT", scaling)
        self.side = side
        self.window: Any = window
        self.scaling: str | None = scaling
        self.periodic: bool = periodic

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        shape = checked_shape(shape)
        if len(shape) != 3 or shape[1] != 1:
            raise ShapeError(
                f"STFT: expected a shape (window, 1, frequencies); received {shape}"
            )
        length, _, count = shape
        # Angles, their cosines and the weighted kernel are in memory together, in
        # float64.
        check_temporary(5 * 8 * length * count, f"STFT of shape {shape}")
        cycles = np.arange(length)[:, None] * np.arange(count) / max(2 * (count - 1), 1)
        angles = -2 * np.pi * (cycles % 1)
        kernel = np.cos(angles) if self.side == "real" else np.sin(angles)
        if self.window is not None:
            kernel = kernel * self._weights(length)[:, None]
        return convert(kernel[:, None], dtypes.standardize(dtype))

    def _weights(self, length: int) -> Array:
        """Return the scaled window."""
        if isinstance(self.window, str):
            weights = window_of(self.window, length, self.periodic)
        else:
            weights = np.asarray(self.window, np.float64)
        if weights.shape != (length,):
            raise ShapeError(
                f"STFT: expected a window of shape {(length,)}; received "
                f"{weights.shape}"
            )
        if self.scaling is None:
            return weights
        is_density = self.scaling == "density"
        total = np.sqrt((weights**2).sum()) if is_density else abs(weights).sum()
        return weights / total

    def get_config(self) -> dict[str, Any]:
        window = self.window
        if window is not None and not isinstance(window, str):
            window = np.asarray(window).tolist()
        return {
            "side": self.side,
            "window": window,
            "scaling": self.scaling,
            "periodic": self.periodic,
        }


def check_scaling(owner: str, scaling: Any) -> None:
    """Raise unless STFT supports `scaling`."""
    if scaling is not None and scaling not in ("density", "spectrum"):
        raise unknown_choice(f"{owner}: scaling", scaling, ["density", "spectrum"])
