"""Test staged files: foreign paths are kept, remains of kills are removed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest

from tests.files.other_systems import as_on_nfs, as_on_windows, take_for_junction
from toolkit.errors import UnwritableFileError
from toolkit.files import sets as file_sets, staging
from toolkit.files.sets import FileSet
from toolkit.files.staging import Stage, remove_stale_stages, replace_file


def text_of(folder):
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


def write(path, text="new"):
    replace_file(path, lambda new: new.write_text(text))


def pair(folder):
    return FileSet(folder, "pair", lambda name: name in ("a", "b", "c/d"), "a")


def save(files, **texts):
    with files.replace(lambda: ["a", "b", "c/d"]) as folder:
        for name, text in texts.items():
            path = folder / name.replace("_", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


@pytest.fixture(params=["here", "windows", "nfs"])
def system(request, monkeypatch):
    """Return a system of saves: this one, or one on which open files stay."""
    if request.param != "here" and not os.path.isdir("/proc/self/fd"):
        pytest.skip("it is not told which files are open")
    if request.param == "windows":
        as_on_windows(monkeypatch)
    if request.param == "nfs":
        as_on_nfs(monkeypatch)


# --- one file -------------------------------------------------------------------------


def test_file_keeps_its_mode_and_leaves_no_stage(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o640)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert text_of(tmp_path) == {"x": "new"} and len(os.listdir(tmp_path)) == 1


def test_path_that_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(UnwritableFileError, match="not a regular file"):
            write(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


def test_saved_file_is_flushed_with_its_folder(tmp_path, monkeypatch):
    flushed = []
    fsync = os.fsync

    def note(handle):
        flushed.append(os.path.realpath(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path / "x")
    save(pair(tmp_path), a="1", c_d="2")
    names = [os.path.basename(path) for path in flushed]
    assert names[0] == "x" and flushed[1] == str(tmp_path)
    assert names.index("a") < names.index("files") < flushed[2:].index(str(tmp_path))
    assert {"d", "c"} <= set(names)


KILLED = """
import os, sys
from pathlib import Path
from toolkit.files.staging import Stage
stage = Stage(Path(sys.argv[1]), "x")
(stage.files / "half").write_text("half")
os._exit(9)
"""


def test_next_save_removes_the_remains_of_a_kill(system, tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    (remaining,) = os.listdir(tmp_path)
    write(tmp_path / "y")
    assert remaining in os.listdir(tmp_path)  # it does not have this name
    write(tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_stage_in_use_is_kept(system, tmp_path):
    with Stage(tmp_path, "x") as stage:
        write(tmp_path / "x")
        assert stage.files.is_dir()
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("content", [None, b"mine", b"toolkit: something else"])
def test_foreign_folders_with_stage_names_are_kept(tmp_path, content):
    foreign = tmp_path / ".x.0123abcd.tmp"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    if content is not None:
        (foreign / "owner").write_bytes(content)
    linked = tmp_path / ".x.0123abce.tmp"
    linked.symlink_to(foreign)
    (tmp_path / ".x.0123abcf.tmp").write_text("a file")
    remove_stale_stages(tmp_path, "x")
    assert (foreign / "thesis.tex").read_text() == "years of work"
    assert linked.is_symlink() and (tmp_path / ".x.0123abcf.tmp").exists()


def test_links_in_a_stage_are_not_followed(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    (remaining,) = tmp_path.iterdir()
    external = tmp_path / "outside"
    external.mkdir()
    (external / "file").write_text("years of work")
    (remaining / "files" / "folder").symlink_to(external)
    (remaining / "link").symlink_to(external / "file")
    remove_stale_stages(tmp_path, "x")
    assert not remaining.exists() and text_of(external) == {"file": "years of work"}


# --- several files --------------------------------------------------------------------


def test_files_of_the_older_save_are_removed_with_it(system, tmp_path):
    files = pair(tmp_path)
    (tmp_path / "foreign").write_text("stays")
    save(files, a="1", b="1", c_d="1")
    save(files, a="2")
    assert text_of(tmp_path) == {"a": "2", "foreign": "stays"}


def interrupted(folder, monkeypatch, at):
    """Interrupt a save after a number of files reached their paths."""
    files, move_file = pair(folder), FileSet._move_file
    calls_left = [at]

    def cut_off(self, ready, path):
        if not calls_left[0]:
            raise KeyboardInterrupt
        calls_left[0] -= 1
        move_file(self, ready, path)

    with monkeypatch.context() as patch:
        patch.setattr(FileSet, "_move_file", cut_off)
        with pytest.raises(KeyboardInterrupt):
            save(files, a="2", b="2")
    return files


@pytest.mark.parametrize("at", [0, 1])
def test_committed_save_is_found_and_finished(system, tmp_path, monkeypatch, at):
    save(pair(tmp_path), a="1", b="1", c_d="1")
    files = interrupted(tmp_path, monkeypatch, at)
    assert text_of(tmp_path)["b"] == "1"
    assert files.read(text_of) == {"a": "2", "b": "2"}
    files.complete_interrupted_save()
    assert text_of(tmp_path) == {"a": "2", "b": "2"}
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["e", "../e", "c/../../e"])
def test_only_paths_of_the_save_are_written(tmp_path, monkeypatch, name):
    """Foreign files in the folder of an interrupted save are ignored."""
    root = tmp_path / "root"
    root.mkdir()
    save(pair(root), a="1", b="1")
    for path in (tmp_path / "e", root / "e"):
        path.write_text("foreign")
    files = interrupted(root, monkeypatch, 0)
    ready = root / ".pair.ready"
    identities = {name: file_sets._identity(root / name)}
    (ready / "gone.json").write_text(__import__("json").dumps(identities))
    files.complete_interrupted_save()
    assert (tmp_path / "e").exists() and (root / "e").exists()
    files = interrupted(root, monkeypatch, 0)
    (ready / "files" / "e").write_text("hostile")
    with pytest.raises(UnwritableFileError, match="not a file of this save"):
        files.complete_interrupted_save()
    assert (root / "e").read_text() == "foreign"


def test_linked_folder_is_not_followed(tmp_path):
    external = tmp_path / "outside"
    external.mkdir()
    (external / "d").write_text("foreign")
    (tmp_path / "c").symlink_to(external)
    with pytest.raises(UnwritableFileError, match="is a link"):
        save(pair(tmp_path), a="1", c_d="2")
    assert text_of(external) == {"d": "foreign"} and not (tmp_path / "a").exists()


def test_foreign_folder_at_the_path_is_kept(tmp_path):
    (tmp_path / ".pair.ready" / "files").mkdir(parents=True)
    (tmp_path / ".pair.ready" / "files" / "a").write_text("foreign")
    with pytest.raises(UnwritableFileError, match="blocks this path"):
        save(pair(tmp_path), a="1")
    assert pair(tmp_path).folder() == tmp_path
    assert (tmp_path / ".pair.ready" / "files" / "a").exists()


def test_system_without_links_and_locks(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", fail)
    monkeypatch.setattr(file_sets, "lock", lambda *args: False)
    monkeypatch.setattr(staging, "lock", lambda *args, **kwargs: False)
    save(pair(tmp_path), a="1", b="1")
    save(pair(tmp_path), a="2", c_d="2")
    assert text_of(tmp_path) == {"a": "2"} and text_of(tmp_path / "c") == {"d": "2"}
    assert sorted(os.listdir(tmp_path)) == ["a", "c"]


def test_save_waits_for_a_reader_where_open_files_stay(tmp_path, monkeypatch):
    as_on_windows(monkeypatch)
    write(tmp_path / "x", "1")
    save(pair(tmp_path), a="1")
    for name, save_again in [
        ("x", lambda: write(tmp_path / "x", "2")),
        ("a", lambda: save(pair(tmp_path), a="2")),
    ]:
        with open(tmp_path / name, encoding="utf-8") as reader:
            saver = threading.Thread(target=save_again)
            saver.start()
            saver.join(0.1)
            assert saver.is_alive() and reader.read() == "1"
        saver.join()
    assert text_of(tmp_path) == {"x": "2", "a": "2"}
    monkeypatch.setattr(staging, "_RETRY_TIMEOUT", 0.05)
    with (
        open(tmp_path / "x", encoding="utf-8"),
        pytest.raises(UnwritableFileError, match="open"),
    ):
        write(tmp_path / "x", "3")
    assert text_of(tmp_path) == {"x": "2", "a": "2"}


def test_junction_is_not_followed(tmp_path, monkeypatch):
    save(pair(tmp_path), a="1", c_d="1")
    take_for_junction(monkeypatch, tmp_path / "c")
    assert staging.is_link(tmp_path / "c") and not staging.is_link(tmp_path / "a")
    with pytest.raises(UnwritableFileError, match="is a link"):
        save(pair(tmp_path), a="2", c_d="2")
    assert text_of(tmp_path) == {"a": "1"} and text_of(tmp_path / "c") == {"d": "1"}


def test_save_may_finish_while_a_reader_looks_for_it(tmp_path, monkeypatch):
    """Each time a reader finds the save ready, the save has finished meanwhile."""
    saved, identity = iter("123456789"), file_sets._identity

    def come():
        """Commit a save whose files have not reached their paths."""
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(FileSet, "_finish_save", interrupt)
            text = next(saved)
            save(pair(tmp_path), a=text, b=text)

    def interrupt(files, folder):
        raise KeyboardInterrupt

    def go(path):
        if path.name == ".pair.ready" and os.path.lexists(path):
            pair(tmp_path).complete_interrupted_save()
        return identity(path)

    tried = []

    def read(folder):
        tried.append(folder)
        if len(tried) == 1:
            come()
            raise FileNotFoundError
        return (folder / "a").read_text()

    come()
    monkeypatch.setattr(file_sets, "_identity", go)
    assert pair(tmp_path).read(read) == "2"
    assert tried == [tmp_path, tmp_path]


def test_many_writers_and_readers(tmp_path):
    """A reader sees files of one save, for any number of writers."""
    save(pair(tmp_path), a="0", b="0")
    is_finished, mixed = threading.Event(), []

    def read():
        def read_pair(folder):
            a, b = ((folder / name).read_text() for name in "ab")
            if a != b:
                raise ValueError((a, b))

        while not is_finished.is_set():
            try:
                pair(tmp_path).read(read_pair)
            except ValueError as error:
                mixed.append(error)

    def write(name):
        for number in range(20):
            save(pair(tmp_path), a=f"{name}{number}", b=f"{name}{number}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    is_finished.set()
    for thread in readers:
        thread.join()
    assert not mixed
    texts = text_of(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"] and texts["a"] == texts["b"]
