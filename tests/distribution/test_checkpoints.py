"""Checkpoints in parts, by virtual ranks."""

import json
import os

import numpy as np
import pytest

import toolkit as tk
from toolkit.comm import local
from toolkit.distribution import Checkpoint
from toolkit.errors import ModelFileError, UnwritableFileError


class Odd(tk.layers.Layer):
    def build(self, shape):
        for number, (extents, dtype) in enumerate(
            [((), "float32"), ((0, 3), "float32"), ((7, 5), "bfloat16")]
        ):
            self.add_weight(
                extents, "normal", dtype, trainable=False, name=f"w{number}"
            )

    def call(self, x):
        return x


def make(seed):
    tk.utils.set_random_seed(seed)
    layers = [tk.Input((40,)), Odd(), tk.layers.Dropout(0.5), tk.layers.Dense(50)]
    model = tk.Sequential(layers)
    model.compile("adam", "mse")
    x = np.random.default_rng(seed).normal(size=(8, 40)).astype("float32")
    model.fit(x, np.ones((8, 50), "float32"), verbose=0)
    return model


def bits(model):
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [np.asarray(v).tobytes() for v in variables]


def save(model, path, ranks=3, **options):
    def of(group):
        checkpoint = Checkpoint(model, group)
        checkpoint.save(path, **options)
        checkpoint.wait()

    local.run(ranks, of)


@pytest.mark.parametrize("wait", [True, False])
def test_is_read_by_any_number_of_ranks(tmp_path, wait):
    model, path = make(1), tmp_path / "x"
    save(model, path, position={"epoch": 3}, wait=wait)
    assert sorted(os.listdir(tmp_path)) == ["x"]
    sizes = [(path / f"rank-0000{r}.bin").stat().st_size for r in range(3)]
    total = sum(map(len, bits(model)))
    assert max(sizes) <= total / 3 + 64 * len(bits(model))
    for ranks in (1, 2, 4):
        others = [make(2) for _ in range(ranks)]
        found = local.run(
            ranks,
            lambda g, m=others: Checkpoint(m[g.rank], g).restore(path),
        )
        assert found == [{"epoch": 3}] * ranks
        assert all(bits(other) == bits(model) for other in others)


def flip(path):
    raw = bytearray((path / "rank-00001.bin").read_bytes())
    raw[3] ^= 1
    (path / "rank-00001.bin").write_bytes(raw)


def cut(path):
    os.truncate(path / "rank-00001.bin", 5)


def link(path):
    (path / "rank-00001.bin").rename(path / "y")
    (path / "rank-00001.bin").symlink_to("y")


def edit(**changes):
    def change(path):
        state = json.loads((path / "state.json").read_text())
        entry = state["variables"]["weights/0"]
        for key, value in changes.items():
            (entry if key in entry else entry["pieces"][0])[key] = value
        (path / "state.json").write_text(json.dumps(state))

    return change


DAMAGES = [
    *(flip, cut, link, edit(shape=[1]), edit(pieces=[]), edit(file="../x.bin")),
    *(edit(offset=-1), edit(length=1 << 60), edit(length="a"), edit(dtype="int8")),
    *(edit(file=3), edit(sha256=None), edit(pieces=3)),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_refused(tmp_path, damage):
    model, path = make(1), tmp_path / "x"
    save(model, path)
    # Whole, but outside: its name must be refused, whatever it holds.
    (tmp_path / "x.bin").write_bytes((path / "rank-00000.bin").read_bytes())
    damage(path)
    other = make(2)
    before = bits(other)
    with pytest.raises(ModelFileError, match="variable (weights|optimizer|others)/"):
        Checkpoint(other, local.single()).restore(path)
    assert bits(other) == before


def test_what_fails_in_one_rank_fails_in_all(tmp_path, monkeypatch):
    model, path = make(1), tmp_path / "x"
    true = os.fsync
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        true(handle)

    monkeypatch.setattr(os, "fsync", full)

    def of(group):
        with pytest.raises(UnwritableFileError, match="process . *.*No space left"):
            Checkpoint(model, group).save(path)
        return True

    assert local.run(3, of) == [True] * 3
    assert not os.listdir(tmp_path)


def test_an_older_one_stays(tmp_path):
    save(make(1), tmp_path / "x")
    with pytest.raises(UnwritableFileError, match="there already"):
        save(make(2), tmp_path / "x", wait=False)
    model = make(3)
    Checkpoint(model, local.single()).restore(tmp_path / "x")
    assert bits(model) == bits(make(1))
