"""Sound files: WAV as arrays, and data sets of folders of sounds."""

from __future__ import annotations

import os
import wave
from typing import Any

import numpy as np

from toolkit.arguments import is_int
from toolkit.errors import (
    ArgumentError,
    DatasetError,
    MalformedDataError,
    MissingDataError,
)
from toolkit.reading.file_errors import check_regular_file
from toolkit.type_aliases import Array
from toolkit.utils.directories import common_arguments, from_directory

_CORRUPT_WAV_ERRORS = (
    *(wave.Error, EOFError, OSError, ValueError, ArithmeticError, MemoryError),
    RuntimeError,
)
_MAX_SAMPLES = 1 << 24  # limit on the samples after resampling of a short file


def read_wav(path: str) -> tuple[Array, int]:
    """Read a WAV file: (float32 (samples, channels) in [-1, 1), samples per second).

    Args:
        path: path of a file with integers of 8, 16, 24 or 32 bits (PCM).
    """
    check_regular_file(path, DatasetError, MissingDataError)
    return read_wav_samples(path, os.path.getsize(path), repr(path))


def read_wav_samples(file: Any, size: int, name: str) -> tuple[Array, int]:
    """Read an open WAV file:

    (float32 (samples, channels) in [-1, 1), samples per second).

    Args:
        file: its path, or an open file.
        size: its size in bytes.
        name: its name in errors.
    """
    try:
        with wave.open(file, "rb") as reader:
            width, channels = reader.getsampwidth(), reader.getnchannels()
            # The header's number of frames would determine the memory, so the file size
            # limits it.
            count = min(reader.getnframes(), size // (width * channels))
            data = np.frombuffer(reader.readframes(count), np.uint8)
            rate = reader.getframerate()
            if rate < 1 or not 1 <= width <= 4 or len(data) % (width * channels):
                raise ValueError("it is truncated or has an unsupported format")
    except FileNotFoundError:
        raise
    except _CORRUPT_WAV_ERRORS as error:
        raise MalformedDataError(
            f"{name}: expected a WAV file (PCM): {error}"
        ) from error
    if width == 1:  # only these are unsigned
        data = data ^ np.uint8(0x80)
    frames = data.reshape(-1, width)
    # The bytes of a sample become the high bytes of an int32.
    int32_bytes = np.zeros((len(frames), 4), np.uint8)
    int32_bytes[:, 4 - width :] = frames
    samples = int32_bytes.view("<i4").reshape(-1, channels)
    return (samples / 2.0**31).astype("float32"), rate


def resample(sound: Array, rate: int, target_rate: int) -> Array:
    """Resample a sound (samples, channels) to another number of samples per second.

    Its spectrum is truncated or padded with zeros, as if the sound were periodic.
    """
    count = round(len(sound) * target_rate / rate)
    if count > max(_MAX_SAMPLES, 64 * len(sound)):
        raise MalformedDataError(
            f"{len(sound):,} samples at {rate} Hz would become {count:,} samples at "
            f"{target_rate} Hz, which exceeds the limit"
        )
    spectrum = np.fft.rfft(sound, axis=0)[: count // 2 + 1]
    return (np.fft.irfft(spectrum, count, axis=0) * (target_rate / rate)).astype(
        "float32"
    )


def _pad_sounds(sounds: list[Array], length: int | None) -> Array:
    """Pad sounds to the given or maximum length, and to equal channels."""
    length = max(map(len, sounds)) if length is None else length
    channels = max(sound.shape[1] for sound in sounds)
    result = np.zeros((len(sounds), length, channels), "float32")
    for row, sound in zip(result, sounds, strict=True):
        row[: len(sound), : sound.shape[1]] = sound[:length]
    return result


def audio_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Any = None,
    batch_size: int | None = 32,
    sampling_rate: int | None = None,
    output_sequence_length: int | None = None,
    ragged: bool = False,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    verbose: bool = True,
) -> Any:
    """Return batches of the sounds in a folder of `.wav` files, read on demand.

    Missing channels of a sound, relative to the batch, are zeros.

    Args:
        directory: the folder; with inferred labels, it contains a folder for each
            class.
        labels: "inferred" from the folders, None for sounds without labels, or an
            integer for each file in the alphabetical order of paths.
        label_mode: "int"; "binary": 0.0 or 1.0, (batch, 1); "categorical": (batch,
            classes), 1.0 at the label; None: sounds without labels.
        class_names: the folders to use, in the order of their labels.
        batch_size: sounds per batch; None: elements without a batch axis.
        sampling_rate: samples per second after resampling; None: no resampling.
        output_sequence_length: length to which sounds are truncated, or padded with 0;
            None: the longest sound of the batch.
        ragged: must be False; there are no ragged tensors.
        shuffle: whether the order is random, otherwise alphabetical.
        seed: seed of the order.
        validation_split: the fraction of files for validation, in (0, 1).
        subset: "training", "validation" or "both", if there is a split.
        follow_links: whether to visit folders that are links.
        verbose: whether to print the number of files.

    Returns:
        A `toolkit.data.Dataset` with `class_names` and `file_paths`: of float32 (batch,
        samples, channels) in [-1, 1), or pairs of these and labels. For subset "both" a
        list of two.

    Example:
        >>> from toolkit.utils import audio_dataset_from_directory
        >>> dataset = audio_dataset_from_directory("sounds")  # doctest: +SKIP
    """
    arguments = common_arguments({**locals(), "format": "tf"})
    caller = "audio_dataset_from_directory"
    if ragged:
        raise ArgumentError(f"{caller}: `ragged=True` is unsupported")
    if sampling_rate is not None:
        if not is_int(sampling_rate) or sampling_rate <= 0:
            raise ArgumentError(
                f"{caller}: `sampling_rate` should be higher than 0, an integer value; "
                f"received {sampling_rate!r}"
            )

    def read(paths: list[str]) -> Array:
        sounds = []
        for path in paths:
            sound, rate = read_wav(path)
            if sampling_rate not in (None, rate):
                sound = resample(sound, rate, sampling_rate)
            sounds.append(sound)
        return _pad_sounds(sounds, output_sequence_length)

    return from_directory(caller, read, "audio files", **arguments)
