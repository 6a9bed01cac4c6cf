"""Layers that compute spectrograms of signals."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from toolkit import dtypes, initializers, ops, settings
from toolkit.console.frames import warn
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, DTypeError, unknown_choice
from toolkit.initializers.fourier import check_scaling, check_window
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.preprocessing.data_layer import DataLayer
from toolkit.reading.budget import spend
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import DTypeLike, RegularizedLayerOptions, TensorLike

_MODES = ("angle", "imag", "log", "magnitude", "psd", "real", "stft")


class STFTSpectrogram(DataLayer):
    """Short-time Fourier transform of signals, by convolutions.

    The kernels are initialized to the transform, and are trainable.

    Args:
        mode: "stft": real and imaginary parts, concatenated; "real", "imag";
            "magnitude"; "log": the log magnitude; "angle": the phase in radians; "psd":
            powers, doubled for frequencies that also have a negative counterpart.
        frame_length: the number of samples per frame.
        frame_step: the number of samples between the starts of frames; half a frame if
            None.
        fft_length: at least frame_length: the result has fft_length // 2 + 1
            frequencies; the next power of 2 if None.
        window: a name in scipy.signal.windows, weights (frame_length,), or None.
        periodic: whether a window given by name is periodic.
        scaling: the scaling of the window: "density", "spectrum" or None; see
            `initializers.STFT`.
        padding: "valid", or "same": zeros so that frames cover all samples.
        expand_dims: whether frequencies have a separate axis; otherwise one axis
            contains the frequencies of all channels.
        data_format: "channels_last", "channels_first", or None for the global default.

    Input shape: (batch, samples, channels), or channels first.

    Output shape: (batch, frames, channels * frequencies); (batch, channels *
        frequencies, frames) with channels first. With expand_dims: (batch, frames,
        frequencies, channels) or (batch, channels, frames, frequencies).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.STFTSpectrogram("log", frame_length=256)
        >>> layer(toolkit.ops.ones((2, 1024, 1))).shape
        (2, 7, 129)
    """

    def __init__(
        self,
        mode: str = "log",
        frame_length: int = 256,
        frame_step: int | None = None,
        fft_length: int | None = None,
        window: Any = "hann",
        periodic: bool = False,
        scaling: str | None = "density",
        padding: str = "valid",
        expand_dims: bool = False,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if mode not in _MODES:
            raise unknown_choice("STFTSpectrogram: mode", mode, _MODES)
        if padding not in ("same", "valid"):
            raise unknown_choice("STFTSpectrogram: padding", padding, ["same", "valid"])
        check_scaling("STFTSpectrogram", scaling)
        if isinstance(window, str):
            check_window(window)
        self.mode = mode
        self.padding = padding
        self.expand_dims: bool = expand_dims
        self.window: Any = window
        self.periodic: bool = periodic
        self.scaling: str | None = scaling
        self.frame_length: int = frame_length
        self.frame_step: int | None = frame_step
        self.fft_length = fft_length
        self._check_lengths()
        self.data_format: str = standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=3)

    def _check_lengths(self) -> None:
        length, step, count = self.frame_length, self.frame_step, self.fft_length
        if length < 1:
            raise ArgumentError(
                "STFTSpectrogram: `frame_length` should be a positive integer. "
                f"Received frame_length={length}"
            )
        if step is not None and not 1 <= step <= length:
            raise ArgumentError(
                "STFTSpectrogram: `frame_step` should be a positive integer not "
                f"greater than `frame_length`. Received frame_step={step}, "
                f"frame_length={length}"
            )
        if count is not None and count < length:
            raise ArgumentError(
                "STFTSpectrogram: `fft_length` should be not less than `frame_length`. "
                f"Received fft_length={count}, frame_length={length}"
            )
        if count is not None and count & (count - 1):
            warn(
                "STFTSpectrogram: `fft_length` is recommended to be a power of two. "
                f"Received fft_length={count}"
            )

    def build(self, input_shape: Any) -> None:
        count = self.fft_length or 2 ** math.ceil(math.log2(self.frame_length))
        for side, other in (("real", "imag"), ("imag", "real")):
            if self.mode == other:
                continue
            initializer = initializers.STFT(
                side, self.window, self.scaling, self.periodic
            )
            shape = self.frame_length, 1, count // 2 + 1
            kernel = self.add_weight(
                name=f"{side}_kernel", shape=shape, initializer=initializer
            )
            setattr(self, f"{side}_kernel", kernel)

    def call(self, inputs: Any) -> Tensor:
        if not dtypes.is_float(inputs.dtype):
            raise DTypeError(
                "STFTSpectrogram: Invalid input type. Expected floats. Received: input "
                f"type={inputs.dtype}"
            )
        x = inputs
        if self.data_format == "channels_last":
            x = ops.transpose(x, (0, 2, 1))
        y = self._shown(ops.reshape(x, (-1, x.shape[2], 1)))
        y = ops.reshape(y, (-1, x.shape[1], *y.shape[1:]))
        return self._arranged(y)

    def _side(self, side: str, x: Any) -> Tensor:
        """Return the real or imaginary part of the transform (signals, samples, 1)."""
        return ops.conv(
            x,
            ops.cast(getattr(self, f"{side}_kernel"), x.dtype),
            strides=self.frame_step or self.frame_length // 2,
            padding=self.padding,
            data_format="channels_last",
        )

    def _shown(self, x: TensorLike) -> Tensor:
        """Return the output of the mode: (signals, frames, frequencies)."""
        if self.mode in ("real", "imag"):
            return self._side(self.mode, x)
        real, imag = self._side("real", x), self._side("imag", x)
        if self.mode == "angle":
            return ops.arctan2(imag, real)
        if self.mode == "stft":
            return ops.concatenate([real, imag], axis=-1)
        power = ops.square(real) + ops.square(imag)
        if self.mode == "psd":
            doubled = ops.pad(power[..., 1:-1], [(0, 0), (0, 0), (1, 1)])
            return power + doubled
        smallest = settings.epsilon()
        magnitude = ops.sqrt(ops.maximum(power, smallest))
        if self.mode == "magnitude":
            return magnitude
        return ops.log(ops.maximum(magnitude, smallest))

    def _arranged(self, y: Tensor) -> Tensor:
        """Transpose (batch, channels, frames, frequencies) to the output format."""
        _, channels, pieces, count = y.shape
        last = self.data_format == "channels_last"
        if self.expand_dims:
            return ops.transpose(y, (0, 2, 3, 1)) if last else y
        if last:
            y = ops.transpose(y, (0, 2, 1, 3))
            return ops.reshape(y, (-1, pieces, channels * count))
        y = ops.transpose(y, (0, 1, 3, 2))
        return ops.reshape(y, (-1, channels * count, pieces))


class MelSpectrogram(DataLayer):
    """Mel spectrogram: energies of frequency bands of equal perceived width.

    Args:
        fft_length: the number of samples per frame.
        sequence_stride: the number of samples between the centers of frames.
        sequence_length: the number of samples in the window; fft_length if None.
        window: "hann", "hamming", weights (sequence_length,), or None.
        sampling_rate: samples per second.
        num_mel_bins: the number of bands.
        min_freq: the lowest frequency, in hertz.
        max_freq: the highest frequency; half the sampling rate if None.
        power_to_db: whether to return decibels.
        top_db: the range in decibels: values more than this below the maximum are
            clipped.
        mag_exp: exponent of the magnitudes; 1 for energy, 2 for power.
        min_power: the lower bound of values before the conversion to decibels.
        ref_power: the value of 0 decibels.

    Input shape: (batch, samples) or (samples,).

    Output shape: (batch, num_mel_bins, frames) or (num_mel_bins, frames), where the
        number of frames is 1 + samples // sequence_stride.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.MelSpectrogram(512, 128, num_mel_bins=40)
        >>> layer(toolkit.ops.ones((2, 8000))).shape
        (2, 40, 63)

    Reference: https://en.wikipedia.org/wiki/Mel_scale
    """

    def __init__(
        self,
        fft_length: int = 2048,
        sequence_stride: int = 512,
        sequence_length: int | None = None,
        window: Any = "hann",
        sampling_rate: int = 16000,
        num_mel_bins: int = 128,
        min_freq: float = 20.0,
        max_freq: float | None = None,
        power_to_db: bool = True,
        top_db: float = 80.0,
        mag_exp: float = 2.0,
        min_power: float = 1e-10,
        ref_power: float = 1.0,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.fft_length: int = fft_length
        self.sequence_stride: int = sequence_stride
        self.sequence_length: int = sequence_length or fft_length
        if fft_length < self.sequence_length:
            raise ArgumentError(
                "MelSpectrogram: `fft_length` must be greater than or equal to "
                f"`sequence_length`. Received: fft_length={fft_length}, "
                f"sequence_length={sequence_length}"
            )
        # Two copies of the window, and the spectrum of the frame that builds the trace.
        spend(32 * fft_length, f"a window of {fft_length} samples")
        self.window: Any = window
        self.sampling_rate: int = sampling_rate
        self.num_mel_bins: int = num_mel_bins
        self.min_freq: float = min_freq
        self.max_freq: float | int = max_freq or int(sampling_rate / 2)
        self.power_to_db: bool = power_to_db
        self.top_db: float = top_db
        self.mag_exp: float = mag_exp
        self.min_power: float = min_power
        self.ref_power: float = ref_power

    def call(self, inputs: Any) -> Tensor:
        wide = self.compute_dtype if self.compute_dtype == "float64" else "float32"
        real, imag = ops.stft(
            ops.cast(inputs, wide),
            self.sequence_length,
            self.sequence_stride,
            self.fft_length,
            window=self.window,
        )
        power = ops.square(real) + ops.square(imag)
        weights = self.linear_to_mel_weight_matrix(
            self.num_mel_bins,
            power.shape[-1],
            self.sampling_rate,
            self.min_freq,
            self.max_freq,
            dtype=wide,
        )
        y = ops.matmul(ops.power(power, self.mag_exp / 2), weights)
        if self.power_to_db:
            y = self._decibels(y)
        return ops.cast(ops.swapaxes(y, -1, -2), self.compute_dtype)

    def _decibels(self, y: Tensor) -> Tensor:
        zero = 10 * math.log10(max(abs(self.ref_power), self.min_power))
        y = 10 * ops.log10(ops.maximum(y, self.min_power)) - zero
        return ops.maximum(y, ops.max(y) - self.top_db)

    def linear_to_mel_weight_matrix(
        self,
        num_mel_bins: int = 20,
        num_spectrogram_bins: int = 129,
        sampling_rate: float = 8000,
        lower_edge_hertz: float = 125.0,
        upper_edge_hertz: float = 3800.0,
        dtype: DTypeLike = "float32",
    ) -> Tensor:
        """Return the weights of mel bands: (num_spectrogram_bins, num_mel_bins).

        Bands are triangles over the mel scale, `1127 * log(1 + hertz / 700)`, that end
        at the centers of the neighbouring bands. The frequency 0 is in no band.

        Args:
            num_mel_bins: the number of bands.
            num_spectrogram_bins: the number of frequencies, from 0 to half the rate.
            sampling_rate: samples per second.
            lower_edge_hertz: the lower edge of the first band.
            upper_edge_hertz: the upper edge of the last band.
            dtype: the dtype of the result.
        """
        # Four such arrays exist at a time, in float64.
        nbytes = 32 * num_mel_bins * num_spectrogram_bins
        spend(nbytes, f"the weights of {num_mel_bins} bands")
        lowest, highest = _mel(lower_edge_hertz), _mel(upper_edge_hertz)
        edges = np.linspace(lowest, highest, num_mel_bins + 2)
        frequencies = np.linspace(0, sampling_rate / 2, num_spectrogram_bins)
        mels = _mel(frequencies)[:, None]
        low, middle, high = edges[:-2], edges[1:-1], edges[2:]
        rising = (mels - low) / (middle - low)
        falling = (high - mels) / (high - middle)
        weights = np.maximum(0, np.minimum(rising, falling))
        weights[0] = 0
        return ops.convert_to_tensor(weights, dtype=dtype)


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log(1 + hertz / 700.0)
