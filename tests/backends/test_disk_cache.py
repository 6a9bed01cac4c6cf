"""Tests of the disk cache of compiled code: it touches only its files."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from toolkit.backends import disk_cache


def name_of(number, ending=""):
    return hashlib.sha256(str(number).encode()).hexdigest() + ending


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk_cache, "CACHE_BYTES", 1)
    return disk_cache.folder("jit")


def create_foreign_files(folder):
    """Create foreign files with various names that are older than all cache files."""
    paths = [
        folder / name for name in ("thesis.tex", name_of("a"), name_of(1, ".plan"))
    ]
    for path in paths:
        path.write_bytes(b"years of work" * 100)
        os.utime(path, (0, 0))
    return paths


def test_foreign_files_are_not_deleted(cache, tmp_path):
    (cache / "inner").mkdir()
    folders = [cache.parent, cache, cache / "inner", tmp_path]
    foreign_files = [
        path for folder in folders for path in create_foreign_files(folder)
    ]
    for number in range(5):
        disk_cache.store(cache / name_of(f"own {number}"), b"code")
    disk_cache.trim(cache)
    assert all(path.read_bytes() == b"years of work" * 100 for path in foreign_files)
    assert not (cache / name_of("own 0")).exists()


@pytest.mark.parametrize("ending", ["", ".cubin", ".algorithm", ".plan", "-16.tuned"])
def test_least_recently_used_files_are_deleted(cache, monkeypatch, ending):
    monkeypatch.setattr(disk_cache, "CACHE_BYTES", 150)
    paths = [cache / "gpu" / name_of(number, ending) for number in range(3)]
    for number, path in enumerate(paths):
        disk_cache.store(path, b"x" * 20)
        os.utime(path, (number, number))
    disk_cache.load(paths[0])  # now it is the most recently used file
    disk_cache.trim(cache)
    assert [path.exists() for path in paths] == [True, False, True]


def test_folder_is_scanned_rarely(cache, monkeypatch):
    first, second, third = (cache / name_of(number) for number in range(3))
    disk_cache.store(first, b"x")
    disk_cache.trim_periodically(cache)
    assert not first.exists()
    disk_cache.store(second, b"x")
    disk_cache.trim_periodically(cache)
    assert second.exists()
    for time_of_scan in (
        time.time() + 3600,
        time.time() - 3600,
    ):  # or a clock set back
        monkeypatch.setattr(
            disk_cache.time, "time", lambda time_of_scan=time_of_scan: time_of_scan
        )
        disk_cache.store(third, b"x")
        disk_cache.trim_periodically(cache)
        assert not second.exists()
        assert not third.exists()


def test_foreign_file_with_the_timestamp_name_stays(cache):
    (cache / ".trimmed").write_bytes(b"years of work")
    os.utime(cache / ".trimmed", (0, 0))
    for number in range(2):
        disk_cache.store(cache / name_of(number), b"x")
        disk_cache.trim_periodically(cache)
        assert not (cache / name_of(number)).exists()
    assert (cache / ".trimmed").read_bytes() == b"years of work"


def test_links_are_not_followed(cache, tmp_path):
    external = tmp_path / "outside"
    external.mkdir()
    foreign_file = external / name_of("kept")
    disk_cache.store(foreign_file, b"code")
    os.utime(foreign_file, (0, 0))
    (cache / "folder").symlink_to(external)
    link = cache / name_of("link")
    link.symlink_to(foreign_file)
    assert disk_cache.load(link) is None
    disk_cache.store(link, b"others")
    disk_cache.trim(cache)
    assert (
        foreign_file.stat().st_mtime == 0 and disk_cache.load(foreign_file) == b"code"
    )
    assert link.is_symlink()


def test_non_files_are_not_touched(cache):
    pipe, folder = cache / name_of("pipe"), cache / name_of("folder")
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        assert disk_cache.load(path) is None
        disk_cache.store(path, b"code")
    disk_cache.trim(cache)
    assert pipe.is_fifo() and folder.is_dir()


def test_partial_files_of_killed_processes_expire(cache):
    old, new, other = cache / ".new-abcd1234", cache / ".new-abcd1235", cache / ".news"
    for path in (old, new, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (time.time() - 7200,) * 2)
    disk_cache.trim(cache)
    assert not old.exists() and new.exists() and other.exists()


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_folders_writable_by_others_are_not_used(cache, mode):
    path = cache / name_of(1)
    disk_cache.store(path, b"code")
    assert disk_cache.load(path) == b"code"
    path.chmod(mode)
    assert disk_cache.load(path) is None
    for directory in (cache, cache.parent):
        directory.chmod(mode)
        assert disk_cache.folder("jit") is None
        directory.chmod(0o700)
    assert disk_cache.folder("jit") == cache


def test_a_full_disk_leaves_nothing(cache, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    disk_cache.store(cache / name_of(1), b"code")
    assert list(cache.iterdir()) == []


# --- folders that another user could replace ------------------------------------------

posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no modes")


@posix
@pytest.mark.parametrize("variable", ["TOOLKIT_CACHE_DIR", "TOOLKIT_HOME"])
@pytest.mark.parametrize("mode, is_used", [(0o755, 1), (0o777, 0), (0o1777, 1)])
def test_private_cache_below_a_world_writable_folder(
    tmp_path, monkeypatch, variable, mode, is_used
):
    monkeypatch.delenv("TOOLKIT_CACHE_DIR", raising=False)
    shared = tmp_path / "shared"
    private = shared / "a" / "private"
    private.mkdir(parents=True, mode=0o700)
    private.parent.chmod(0o755)
    shared.chmod(mode)
    monkeypatch.setenv(variable, str(private))
    assert (disk_cache.folder("jit") is not None) == bool(is_used)


@posix
def test_link_to_a_private_cache_in_a_world_writable_folder(tmp_path, monkeypatch):
    private, shared = tmp_path / "private", tmp_path / "shared"
    private.mkdir(mode=0o700)
    shared.mkdir()
    (shared / "link").symlink_to(private)
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(shared / "link"))
    assert disk_cache.folder("jit") is not None
    shared.chmod(0o777)
    assert disk_cache.folder("jit") is None


@posix
@pytest.mark.skipif(not hasattr(os, "chown"), reason="folders have no owners")
def test_a_private_cache_in_a_folder_of_another_user(tmp_path, monkeypatch):
    if os.getuid() != 0:
        pytest.skip("only the administrator gives folders away")
    outer = tmp_path / "outer"
    (outer / "private").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(outer / "private"))
    assert disk_cache.folder("jit") is not None
    os.chown(outer, 12345, 12345)
    assert disk_cache.folder("jit") is None


@posix
def test_private_group_of_a_user_is_trusted(tmp_path, monkeypatch):
    import grp
    import pwd
    from types import SimpleNamespace

    outer = tmp_path / "outer"
    (outer / "private").mkdir(parents=True, mode=0o700)
    outer.chmod(0o775)
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(outer / "private"))
    user, group = os.getuid(), os.getgid()
    monkeypatch.setattr(os, "getgid", lambda: outer.stat().st_gid)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="me"))
    for name, members, is_used in [
        ("me", [], True),
        ("me", ["me"], True),
        ("me", ["you"], False),
        ("us", [], False),
    ]:
        group_record = SimpleNamespace(gr_name=name, gr_mem=members)
        monkeypatch.setattr(grp, "getgrgid", lambda gid, group=group_record: group)
        # The administrator has no private group.
        assert (disk_cache.folder("jit") is not None) == (is_used and user != 0), group
