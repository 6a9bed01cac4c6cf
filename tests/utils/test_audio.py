"""Test sound files, and data sets of folders of sound files."""

import wave

import numpy as np
import pytest

from toolkit.errors import ArgumentError, DatasetError
from toolkit.utils import audio_dataset_from_directory
from toolkit.utils.audio import read_wav, resample


def write_wav(path, samples, width=2, rate=100):
    """Write samples in [-1, 1), (samples, channels)."""
    levels = np.round(samples * 2 ** (8 * width - 1)).astype("<i4")
    if width == 1:
        levels = levels + 128
    data = levels[..., None].view(np.uint8)[..., :width]
    path.parent.mkdir(exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((samples.shape[1], width, rate, 0, "NONE", ""))
        file.writeframes(data.tobytes())


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate(("a/0.wav", "a/1.wav", "b/2.wav", "b/3.wav")):
        write_wav(tmp_path / name, np.full((10 + i, 1), i / 8))
    return tmp_path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_widths_of_samples(tmp_path, width):
    samples = np.array([[0.5, -0.5], [-1.0, 0.25]])
    write_wav(tmp_path / "x.wav", samples, width)
    waveform, rate = read_wav(str(tmp_path / "x.wav"))
    assert (waveform.tolist(), rate, waveform.dtype) == (
        samples.tolist(),
        100,
        "float32",
    )


def test_other_rates():
    seconds = np.arange(100)[:, None] / 100
    sound = np.sin(2 * np.pi * 3 * seconds)
    expected = np.sin(2 * np.pi * 3 * np.arange(40)[:, None] / 40)
    assert np.allclose(resample(sound, 100, 40), expected, atol=1e-6)
    assert np.allclose(resample(expected, 40, 100), sound, atol=1e-6)


def test_batches_are_padded_to_their_longest_sound(folder):
    batches = audio_dataset_from_directory(
        folder, batch_size=2, shuffle=False, verbose=False
    )
    (x, labels), (longer, _) = batches
    assert (x.shape, longer.shape) == ((2, 11, 1), (2, 13, 1))
    assert x[0, 9:, 0].tolist() == [0.0, 0.0]
    assert longer[1].numpy().min() == 3 / 8
    assert (labels.tolist(), batches.class_names) == ([0, 0], ["a", "b"])


def test_requested_lengths_and_rates(folder):
    arguments = {"labels": None, "batch_size": 4, "shuffle": False, "verbose": False}
    (x,) = audio_dataset_from_directory(folder, output_sequence_length=5, **arguments)
    assert x.shape == (4, 5, 1)
    (x,) = audio_dataset_from_directory(folder, sampling_rate=200, **arguments)
    assert x.shape == (4, 26, 1)


def test_errors(folder):
    with pytest.raises(ArgumentError, match="ragged"):
        audio_dataset_from_directory(folder, ragged=True)
    with pytest.raises(ArgumentError, match="sampling_rate"):
        audio_dataset_from_directory(folder, sampling_rate=0)
    (folder / "a" / "0.wav").write_bytes(b"no sound")
    with pytest.raises(DatasetError, match="WAV"):
        list(audio_dataset_from_directory(folder, verbose=False))


def test_channels_of_a_batch(tmp_path):
    write_wav(tmp_path / "0.wav", np.full((3, 1), 0.25))
    write_wav(tmp_path / "1.wav", np.full((2, 2), 0.5))
    for length in (None, 3):
        data = audio_dataset_from_directory(
            tmp_path,
            labels=None,
            shuffle=False,
            verbose=False,
            output_sequence_length=length,
        )
        x = next(iter(data)).numpy()
        assert x[0].tolist() == [[0.25, 0.0]] * 3
        assert x[1].tolist() == [[0.5, 0.5]] * 2 + [[0.0, 0.0]]
