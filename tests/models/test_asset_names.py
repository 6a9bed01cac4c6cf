"""Test assets of layers whose names refer to one file."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

import toolkit
from tests.files.other_systems import as_where_names_are_alike
from toolkit import layers
from toolkit.errors import ModelFileError, UnwritableFileError
from toolkit.reading.zips import open_members


class Keeper(layers.Layer):
    """A layer that stores a file."""

    def call(self, x):
        return x

    def save_assets(self, folder):
        Path(folder, "words.txt").write_text("some", "utf-8")


class Pair(toolkit.Model):
    """A layer with sublayers whose names differ in case."""

    def __init__(self):
        super().__init__()
        self.Text, self.TEXT = Keeper(), Keeper()

    def call(self, x):
        return self.TEXT(self.Text(x))


def test_folders_that_are_equal_are_refused(tmp_path, monkeypatch):
    model = Pair()
    model(toolkit.ops.ones((1, 2)))
    model.save(tmp_path / "here.keras")
    with zipfile.ZipFile(tmp_path / "here.keras") as file:
        assert len([x for x in file.namelist() if x.endswith("words.txt")]) == 2
    with monkeypatch.context() as patch:
        as_where_names_are_alike(patch)
        with pytest.raises(
            UnwritableFileError,
            match="assets of 'Text': the file system maps 'Text' to",
        ):
            model.save(tmp_path / "there.keras")
    assert os.listdir(tmp_path) == ["here.keras"]


def test_members_that_are_one_file_are_refused(tmp_path):
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("assets/words.txt", "one")
        file.writestr("assets/./words.txt", "another")
    with open_members(path, "a file", 200) as members:
        with pytest.raises(ModelFileError, match="FileExistsError"):
            members.extract("assets", tmp_path / "out")
