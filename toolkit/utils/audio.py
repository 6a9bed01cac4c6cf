"""Sound files: WAV as arrays, and data sets of folders of them."""

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
from toolkit.reading.clear import check_plain
from toolkit.utils.directories import common_arguments, from_directory

Array = np.ndarray[Any, Any]
_DAMAGES = (
    *(wave.Error, EOFError, OSError, ValueError, ArithmeticError, MemoryError),
    RuntimeError,
)
_LONGEST = 1 << 24  # samples that a file may be stretched to, however short it is


def read_wav(path: str) -> tuple[Array, int]:
    """(float32 (samples, channels) in [-1, 1), samples per second) of a WAV file.

    Args:
        path: of a file with whole numbers of 8, 16, 24 or 32 bits (PCM).
    """
    check_plain(path, DatasetError, MissingDataError)
    return wav_samples(path, os.path.getsize(path), repr(path))


def wav_samples(file: Any, size: int, name: str) -> tuple[Array, int]:
    """(float32 (samples, channels) in [-1, 1), samples per second) of a WAV file.

    Args:
        file: its path, or an open file.
        size: how many bytes it has.
        name: what errors call it.
    """
    try:
        with wave.open(file, "rb") as opened:
            width, channels = opened.getsampwidth(), opened.getnchannels()
            # Memory is taken for as many as the file declares.
            count = min(opened.getnframes(), size // (width * channels))
            data = np.frombuffer(opened.readframes(count), np.uint8)
            rate = opened.getframerate()
            if rate < 1 or not 1 <= width <= 4 or len(data) % (width * channels):
                raise ValueError("it is cut off, or of an unusual form")
    except FileNotFoundError:
        raise
    except _DAMAGES as error:
        raise MalformedDataError(
            f"{name}: expected a WAV file (PCM): {error}"
        ) from error
    if width == 1:  # these alone have no sign
        data = data ^ np.uint8(0x80)
    frames = data.reshape(-1, width)
    # The bytes of a sample become the highest ones of an int32.
    wide = np.zeros((len(frames), 4), np.uint8)
    wide[:, 4 - width :] = frames
    samples = wide.view("<i4").reshape(-1, channels)
    return (samples / 2.0**31).astype("float32"), rate


def resample(sound: Array, rate: int, wanted: int) -> Array:
    """A sound (samples, channels) at another number of samples per second.

    Its spectrum is cut or filled with zeros, as if the sound repeated itself.
    """
    count = round(len(sound) * wanted / rate)
    if count > max(_LONGEST, 64 * len(sound)):
        raise MalformedDataError(
            f"a sound of {len(sound):,} samples, {rate} in a second, would have "
            f"{count:,}, {wanted} in a second: refused"
        )
    spectrum = np.fft.rfft(sound, axis=0)[: count // 2 + 1]
    return (np.fft.irfft(spectrum, count, axis=0) * (wanted / rate)).astype("float32")


def _padded(sounds: list[Array], length: int | None) -> Array:
    """Sounds of one length, that asked for or the longest one's; of most channels."""
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
    """Batches of the sounds in a folder of `.wav` files, read when they are needed.

    A sound with fewer channels than others of its batch has zeros for those it lacks.

    Args:
        directory: the folder; with inferred labels, of a folder for each class.
        labels: "inferred" from the folders, None for sounds alone, or an integer for
            each file in the alphabetical order of paths.
        label_mode: "int"; "binary": 0.0 or 1.0, (batch, 1); "categorical": (batch,
            classes), 1.0 at the label; None: sounds alone.
        class_names: the folders that count, in the order of their labels.
        batch_size: sounds per batch; None: they come one by one.
        sampling_rate: samples per second that sounds are brought to; None: they stay.
        output_sequence_length: samples that longer sounds are cut to and shorter ones
            filled up to with 0; None: the longest sound of the batch.
        ragged: must be False; there are no ragged tensors.
        shuffle: whether they come in random order, otherwise alphabetically.
        seed: of the order.
        validation_split: the part of files for validation, in (0, 1).
        subset: "training", "validation" or "both", if there is a split.
        follow_links: whether to visit folders that are links.
        verbose: whether to print how many files there are.

    Returns:
        A `toolkit.data.Dataset` with `class_names` and `file_paths`: of float32 (batch,
        samples, channels) in [-1, 1), or pairs of these and labels. For subset "both"
        a list of two.
    """
    common = common_arguments({**locals(), "format": "tf"})
    caller = "audio_dataset_from_directory"
    if ragged:
        raise ArgumentError(
            f"{caller}: `ragged=True` cannot be used: there are no ragged tensors"
        )
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
        return _padded(sounds, output_sequence_length)

    return from_directory(caller, read, "audio files", **common)
