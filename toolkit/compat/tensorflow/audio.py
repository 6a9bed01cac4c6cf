"""`tf.audio`: WAV files as tensors."""

from __future__ import annotations

import io
import wave
from typing import Any, NamedTuple

import numpy as np

from toolkit.compat.tensorflow.string_tensors import StringTensor, to_single_bytes
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.type_aliases import TensorLike
from toolkit.utils.audio import read_wav_samples


class DecodeWav(NamedTuple):
    """Samples, float32 (samples, channels) in [-1, 1), and the sample rate."""

    audio: Tensor
    sample_rate: Tensor


def decode_wav(
    contents: TensorLike,
    desired_channels: int = -1,
    desired_samples: int = -1,
    name: str | None = None,
) -> DecodeWav:
    """Decode a WAV file (PCM).

    Args:
        contents: the bytes, for example from `tf.io.read_file`.
        desired_channels: the number of channels; the last ones are dropped or the last
            one is repeated. -1 keeps the channels of the file.
        desired_samples: the number of samples, truncated or padded with zeros.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> data = tf.audio.encode_wav([[0.5], [-0.25]], 8000)
        >>> audio, rate = tf.audio.decode_wav(data)
        >>> audio.numpy().ravel().round(3).tolist(), int(rate)
        ([0.5, -0.25], 8000)
    """
    data = to_single_bytes(contents, "decode_wav")
    samples, rate = read_wav_samples(
        io.BytesIO(data), len(data), "decode_wav: contents"
    )
    if desired_channels > 0:
        channel_indices = np.minimum(np.arange(desired_channels), samples.shape[1] - 1)
        samples = samples[:, channel_indices]
    if desired_samples > 0:
        samples = samples[:desired_samples]
        samples = np.pad(samples, ((0, desired_samples - len(samples)), (0, 0)))
    return DecodeWav(convert(samples), convert(np.int32(rate)))


def encode_wav(
    audio: TensorLike, sample_rate: Any, name: str | None = None
) -> StringTensor:
    """Encode a WAV file with 16 bits per sample.

    Args:
        audio: float (samples, channels); values outside of [-1, 1] are clipped.
        sample_rate: samples per second.
    """
    samples = np.asarray(convert(audio, "float32"))
    if samples.ndim != 2:
        raise ArgumentError(
            f"encode_wav: expected audio of shape (samples, channels); received "
            f"{samples.shape}"
        )
    pcm = np.round(np.clip(samples, -1, 1) * 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(int(sample_rate))
        file.writeframes(pcm.tobytes())
    return StringTensor(buffer.getvalue())
