"""Test manifests of weights in several HDF5 or safetensors files."""

import json
import os

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers
from toolkit.errors import ArgumentError, LoadBudgetError, ModelFileError

FILES = {
    "HDF5": ("m.weights.json", ".h5"),
    "safetensors": ("m.safetensors.index.json", ".safetensors"),
}


@pytest.fixture(params=FILES)
def listing(request, tmp_path):
    return tmp_path / FILES[request.param][0]


def model_of(*units):
    """Return a model with layers of these numbers of weights, of 4 bytes each."""
    inputs = tk.Input((1,))
    outputs = [
        layers.Dense(n, use_bias=False, name=f"d{i}")(inputs)
        for i, n in enumerate(units)
    ]
    return tk.Model(inputs, outputs)


def save(listing, model, nbytes):
    model.save_weights(listing, max_shard_size=nbytes / 2**30)


def shards(listing):
    return sorted(listing.parent.glob("*" + suffix_of(listing)))


def suffix_of(listing):
    return dict(FILES.values())[listing.name]


def assert_same_weights(model, restored):
    for a, b in zip(model.weights, restored.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_load_budget_depends_on_all_files(listing):
    """The first file is small, the last is far larger."""
    model = model_of(1, 1_000_000)
    save(listing, model, 4_000_001)
    first, last = shards(listing)
    if first.stat().st_size > last.stat().st_size:
        pytest.fail("the first file should be the smaller one")
    other = model_of(1, 1_000_000)
    tk.saving.set_load_budget(ratio=1, least=0, share=1e-9)
    try:
        other.load_weights(listing)
    finally:
        tk.saving.set_load_budget()
    assert_same_weights(other, model)


def test_manifest_counts_against_the_budget(listing):
    save(listing, model_of(1, 2), 9)
    listing.write_text(
        json.dumps({"weight_map": {str(n): "a" for n in range(300_000)}})
    )
    tk.saving.set_load_budget(ratio=1, least=0, share=1e-9)
    try:
        with pytest.raises(LoadBudgetError):
            model_of(1, 2).load_weights(listing)
    finally:
        tk.saving.set_load_budget()


def test_array_that_does_not_fit_is_in_the_next_file(listing):
    model = model_of(5, 2, 3, 5)
    save(listing, model, 20)
    assert len(shards(listing)) == 3
    other = model_of(5, 2, 3, 5)
    other.load_weights(listing)
    assert_same_weights(other, model)


def test_number_of_written_files_is_limited(listing):
    with pytest.raises(
        ArgumentError, match="at most 500 files; received 501. Increase"
    ):
        save(listing, model_of(*[1] * 501), 4)
    assert not os.listdir(listing.parent)


BAD = {
    "no map": ('{"metadata": {}}', "expected a list of files"),
    "no JSON": ("{", "expected JSON"),
    "deep": ("[" * 100_000, "expected JSON"),
    "twice": ('{"weight_map": {}, "weight_map": {}}', "occurs twice"),
    "too many": (
        json.dumps({"weight_map": {str(n): f"{n}%s" for n in range(501)}}),
        "501 files exceed the limit",
    ),
    "a file that is not there": (
        '{"weight_map": {"a": "n%s"}}',
        "no file|the file does not exist",
    ),
    **{
        name: (
            json.dumps({"weight_map": {"a": name}}),
            "expected names of .* in the same folder",
        )
        for name in (
            *("../a%s", "/etc/passwd", "a/b%s", "a\\b%s", "C:a%s", "..", "", "a.bin"),
            *("a\0%s", "\ud800%s", "é" * 130 + "%s", "%s/.."),
        )
    },
    "a number": ('{"weight_map": {"a": 3}}', "expected names of"),
    "a number in a list": ('{"weight_map": {"a": [3]}}', "expected names of"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_manifests(listing, name):
    text, message = BAD[name]
    listing.write_text(text.replace("%s", suffix_of(listing)))
    with pytest.raises(ModelFileError, match=message):
        model_of(1).load_weights(listing)


def test_links_to_other_folders_are_refused(listing, tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    save(folder / listing.name, model_of(1), 9)
    (shard,) = shards(folder / listing.name)
    shard.rename(tmp_path / shard.name)
    shard.symlink_to(tmp_path / shard.name)
    with pytest.raises(ModelFileError, match="a link to a path outside of its folder"):
        model_of(1).load_weights(folder / listing.name)


def test_name_of_a_single_file_becomes_the_name_of_a_manifest(listing):
    """Overwriting is refused for the manifest."""
    single = listing.with_name(
        {".h5": "m.weights.h5"}.get(suffix_of(listing), "m.safetensors")
    )
    model = model_of(1, 2)
    with pytest.warns(UserWarning, match=f"is renamed to .*{listing.name}"):
        model.save_weights(single, max_shard_size=1)
    assert listing.exists() and not single.exists()
    with (
        pytest.warns(UserWarning, match="is renamed to"),
        pytest.raises(ArgumentError, match="exists already"),
    ):
        model.save_weights(single, overwrite=False, max_shard_size=1)
