"""Test downloads: caching, refusals, and concurrent requests."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.files.other_systems import as_where_names_are_alike
from toolkit.errors import ArgumentError, DatasetError
from toolkit.utils import get_file

CONTENT = b"some bytes worth keeping\n" * 40_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """A server of `pages` on 127.0.0.1 that counts the requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages = {"/data.bin": CONTENT}
        self.requests = 0
        self.cut_short = False

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        page = self.server.pages.get(self.path)
        if page is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page[:1000] if self.server.cut_short else page)

    def log_message(self, *arguments):
        """Suppress the output of the server."""


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "datasets"


def visible(folder):
    """Return the names in a folder without lock files; hidden files must not remain."""
    names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if not name.endswith(".lock")]


def tar_of(members, mode="w:gz"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zip_of(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def link(name, target, kind):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


# --- downloading ----------------------------------------------------------------------


@pytest.mark.parametrize("file_hash", [SHA256, SHA256.upper(), MD5, None])
def test_downloads_once(server, cache, file_hash):
    for _ in range(2):
        path = get_file(origin=server.url("/data.bin"), file_hash=file_hash)
    assert path == str(cache / "data.bin")
    assert (cache / "data.bin").read_bytes() == CONTENT
    assert server.requests == 1
    assert visible(cache) == ["data.bin"]


def test_name_folders_and_old_hash_argument(server, tmp_path):
    path = get_file(
        "mine.bin",
        server.url("/data.bin"),
        md5_hash=MD5,
        cache_subdir="sub/folder",
        cache_dir=tmp_path,
    )
    assert path == str(tmp_path / "sub" / "folder" / "mine.bin")


def test_absolute_cache_subdir_is_used_unchanged(server, cache, tmp_path):
    path = get_file(origin=server.url("/data.bin"), cache_subdir=str(tmp_path / "x"))
    assert path == str(tmp_path / "x" / "data.bin")
    assert not cache.exists()


def test_file_urls(cache, tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    path = get_file(origin=(tmp_path / "a.bin").as_uri(), file_hash=SHA256)
    assert path == str(cache / "a.bin")


def test_force_download_fetches_again(server, cache):
    get_file(origin=server.url("/data.bin"))
    server.pages["/data.bin"] = b"new"
    get_file(origin=server.url("/data.bin"))
    assert (cache / "data.bin").read_bytes() == CONTENT
    get_file(origin=server.url("/data.bin"), force_download=True)
    assert (cache / "data.bin").read_bytes() == b"new"


def test_corrupt_cached_file_is_fetched_again(server, cache):
    cache.mkdir(parents=True)
    (cache / "data.bin").write_bytes(b"half of it")
    get_file(origin=server.url("/data.bin"), file_hash=SHA256)
    assert (cache / "data.bin").read_bytes() == CONTENT


def test_manually_stored_file_needs_no_network(cache):
    cache.mkdir(parents=True)
    (cache / "data.bin").write_bytes(CONTENT)
    path = get_file(origin="http://127.0.0.1:9/data.bin", file_hash=SHA256)
    assert path == str(cache / "data.bin")


def test_wrong_hash_stores_no_file(server, cache):
    with pytest.raises(DatasetError, match=f"expected {'0' * 64}; received {SHA256}"):
        get_file(origin=server.url("/data.bin"), file_hash="0" * 64)
    assert visible(cache) == []


def test_wrong_hash_keeps_the_old_file(server, cache):
    cache.mkdir(parents=True)
    (cache / "data.bin").write_bytes(b"old")
    with pytest.raises(DatasetError):
        get_file(
            origin=server.url("/data.bin"), file_hash="0" * 64, force_download=True
        )
    assert (cache / "data.bin").read_bytes() == b"old"


def test_connection_that_ends_early_stores_no_file(server, cache):
    server.cut_short = True
    with pytest.raises(DatasetError, match=f"1000 of {len(CONTENT)} bytes"):
        get_file(origin=server.url("/data.bin"))
    assert visible(cache) == []


@pytest.mark.parametrize("path", ["/absent.bin", None])
def test_offline_message_names_the_path(server, cache, path):
    origin = server.url(path) if path else "http://127.0.0.1:9/absent.bin"
    with pytest.raises(DatasetError) as caught:
        get_file(origin=origin, file_hash=SHA256)
    for word in (origin, str(cache / "absent.bin"), SHA256):
        assert word in str(caught.value)
    assert visible(cache) == []


def test_unwritable_cache_names_the_variable(server, tmp_path):
    (tmp_path / "home").write_text("a file where a folder should be")
    with pytest.raises(DatasetError, match="TOOLKIT_HOME"):
        get_file(origin=server.url("/data.bin"), cache_dir=tmp_path / "home")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"origin": None}, "argument, a URL that starts"),
        ({"origin": "ftp://127.0.0.1/a"}, "https"),
        ({"origin": "/etc/passwd"}, "https"),
        ({"origin": "https://127.0.0.1/"}, "plain file name"),
        ({"fname": "../a"}, "plain file name"),
        ({"fname": "a/b"}, "plain file name"),
        ({"fname": ".."}, "plain file name"),
        ({"file_hash": "abc"}, "64 hexadecimal digits"),
        ({"file_hash": MD5, "hash_algorithm": "sha256"}, "64 hexadecimal digits"),
        ({"file_hash": SHA256, "md5_hash": MD5}, "received both"),
        ({"hash_algorithm": "crc"}, "'auto', 'md5', 'sha256'; received 'crc'"),
        ({"extract": True, "archive_format": "rar"}, "received 'rar'"),
        ({"extract": True, "archive_format": None}, "needs an archive_format"),
    ],
)
def test_invalid_arguments(cache, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        get_file(**{"origin": "https://127.0.0.1/a.bin"} | arguments)
    assert not cache.exists()


def test_many_processes_download_once(server, cache):
    code = (
        "import sys; from toolkit.utils import get_file;"
        "path = get_file(origin=sys.argv[1], file_hash=sys.argv[2], extract=True);"
        "print(open(path + '/a.txt').read())"
    )
    server.pages["/many.tar.gz"] = archive = tar_of({"a.txt": CONTENT[:50]})
    digest = hashlib.sha256(archive).hexdigest()
    command = [sys.executable, "-c", code, server.url("/many.tar.gz"), digest]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    outputs = [worker.communicate(timeout=60) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 6, outputs
    assert len({output for output, _ in outputs}) == 1
    assert server.requests == 1


# --- archives -------------------------------------------------------------------------

MEMBERS = {"folder/a.txt": b"alpha", "b.txt": b"beta"}


@pytest.mark.parametrize(
    "archive, archive_format",
    [
        (tar_of(MEMBERS), "auto"),
        (tar_of(MEMBERS, "w:bz2"), "tar"),
        (tar_of(MEMBERS, "w"), ["zip", "tar"]),
        (zip_of(MEMBERS), "auto"),
        (zip_of(MEMBERS), ("zip",)),
    ],
)
def test_extracts(server, cache, archive, archive_format):
    server.pages["/archive"] = archive
    arguments = {"extract": True, "archive_format": archive_format}
    for _ in range(2):
        folder = get_file("things", server.url("/archive"), **arguments)
    assert folder == str(cache / "things")
    assert (cache / "things" / "folder" / "a.txt").read_bytes() == b"alpha"
    assert (cache / "things" / "b.txt").read_bytes() == b"beta"
    assert visible(cache) == ["things", "things_archive"]
    assert server.requests == 1


def test_names_of_archive_and_folder(server, cache):
    server.pages["/flowers.tgz"] = tar_of(MEMBERS)
    url = server.url("/flowers.tgz")
    assert get_file(origin=url, untar=True) == str(cache / "flowers.tgz")
    assert (cache / "flowers.tgz_archive").is_file()
    named = get_file("my.tar.gz", url, extract=True)
    assert named == str(cache / "my_extracted")
    assert (cache / "my.tar.gz").is_file()


def test_new_archive_replaces_the_folder(server, cache):
    server.pages["/archive"] = tar_of({"old.txt": b""})
    get_file("things", server.url("/archive"), extract=True)
    server.pages["/archive"] = tar_of({"new.txt": b""})
    get_file("things", server.url("/archive"), extract=True, force_download=True)
    assert visible(cache / "things") == ["new.txt"]


@pytest.mark.parametrize("archive", [tar_of, zip_of])
@pytest.mark.parametrize(
    "names",
    [("a/Cat.txt", "a/cat.txt"), ("Cat/1", "cat/2"), ("\u00e9.txt", "e\u0301.txt")],
)
def test_names_that_are_one_file_are_refused(
    server, cache, archive, names, monkeypatch
):
    server.pages["/archive"] = archive(dict.fromkeys(names, b"x"))
    url = server.url("/archive")
    get_file("here", url, extract=True)  # where they are two
    as_where_names_are_alike(monkeypatch)
    with pytest.raises(DatasetError, match="have the same name on this file system"):
        get_file("there", url, extract=True)
    assert "there" not in visible(cache)


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


@pytest.mark.parametrize("failure", ["offline", "cut off", "damaged", "unsafe"])
@pytest.mark.parametrize("ask_again", ["force", "hash"])
def test_folder_is_kept_until_the_new_one_is_complete(
    server, cache, failure, ask_again
):
    server.pages["/archive"] = tar_of({"old.txt": b"old"})
    get_file("things", server.url("/archive"), extract=True)
    before = contents(cache)
    server.pages["/archive"] = {
        "damaged": tar_of({"new.txt": CONTENT})[:90],
        "unsafe": tar_of({"new.txt": b"", "../evil.txt": b""}),
    }.get(failure, tar_of({"new.txt": CONTENT}, "w"))
    path = "/missing" if failure == "offline" else "/archive"
    server.cut_short = failure == "cut off"
    new = hashlib.sha256(server.pages["/archive"]).hexdigest()
    options = {"force_download": True} if ask_again == "force" else {"file_hash": new}
    with pytest.raises(DatasetError):
        get_file("things", server.url(path), extract=True, **options)
    assert contents(cache) == before


@pytest.mark.parametrize("change", ["another file", "changed", "link", "all foreign"])
@pytest.mark.parametrize("options", [{"force_download": True}, {"file_hash": "0" * 64}])
def test_folder_with_foreign_files_is_never_changed(server, cache, change, options):
    server.pages["/archive"] = tar_of({"old.txt": b"old"})
    things = cache / "things"
    if change == "all foreign":
        things.mkdir(parents=True)
        (things / "thesis.tex").write_text("years of work")
    else:
        get_file("things", server.url("/archive"), extract=True)
    if change == "another file":
        (things / "made.npy").write_bytes(b"made of the others")
    elif change == "changed":
        (things / "old.txt").write_bytes(b"corrected")
    elif change == "link":
        (things / "link").symlink_to(cache)
    before, requests = contents(cache), server.requests
    with pytest.raises(DatasetError, match="Move the folder away"):
        get_file("things", server.url("/archive"), extract=True, **options)
    assert contents(cache) == before and server.requests == requests


def test_link_instead_of_a_folder_is_not_followed(server, cache, tmp_path):
    server.pages["/archive"] = tar_of({"new.txt": b"new"})
    external = tmp_path / "outside"
    external.mkdir()
    (external / "thesis.tex").write_text("years of work")
    cache.mkdir(parents=True)
    (cache / "things").symlink_to(external)
    with pytest.raises(DatasetError, match="not a folder"):
        get_file("things", server.url("/archive"), extract=True, force_download=True)
    assert visible(external) == ["thesis.tex"]


def test_failed_swap_restores_the_older_folder(server, cache, monkeypatch):
    server.pages["/archive"] = tar_of({"old.txt": b"old"})
    get_file("things", server.url("/archive"), extract=True)
    before, rename = contents(cache), os.rename

    def fail(source, target):
        if Path(target) == cache / "things" and Path(source).name == "files":
            raise OSError(5, "Input/output error")
        rename(source, target)

    server.pages["/archive"] = tar_of({"new.txt": b"new"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(DatasetError, match="Input/output"):
            get_file("things", server.url("/archive"), None, extract=True, **FORCE)
    assert contents(cache) == before
    get_file("things", server.url("/archive"), extract=True, **FORCE)
    assert visible(cache / "things") == ["new.txt"]
    assert visible(cache) == ["things", "things_archive"]


FORCE = {"force_download": True}

ESCAPES = {
    "parent": tar_of({"good.txt": b"", "../evil.txt": b""}),
    "absolute": tar_of({"/tmp/evil.txt": b""}),
    "inner parent": tar_of({"a/../../evil.txt": b""}),
    "symbolic link": tar_of({"l": link("l", "/etc", tarfile.SYMTYPE)}),
    "link and file": tar_of(
        {"l": link("l", "..", tarfile.SYMTYPE), "l/evil.txt": b"out"}
    ),
    "hard link": tar_of({"l": link("l", "../../secret", tarfile.LNKTYPE)}),
    "device": tar_of({"d": link("d", "", tarfile.CHRTYPE)}),
    "pipe": tar_of({"p": link("p", "", tarfile.FIFOTYPE)}),
    "zip parent": zip_of({"good.txt": b"", "../evil.txt": b""}),
    "zip absolute": zip_of({"/tmp/evil.txt": b""}),
    "zip backslash": zip_of({"..\\evil.txt": b""}),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_archive_with_outside_paths_is_refused_completely(server, cache, name):
    server.pages["/archive"] = ESCAPES[name]
    with pytest.raises(DatasetError, match="was not unpacked: its member"):
        get_file("things", server.url("/archive"), extract=True)
    assert visible(cache) == ["things_archive"]
    assert not list(cache.parent.rglob("*evil*"))


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        CONTENT,
        tar_of({"a": CONTENT})[:900],
        tar_of({"a": CONTENT}, "w")[:9000],
        zip_of({})[:9],
    ],
)
def test_corrupt_archive(server, cache, archive):
    server.pages["/archive"] = archive
    with pytest.raises(DatasetError, match="cannot unpack"):
        get_file("things", server.url("/archive"), extract=True)
    assert visible(cache) == ["things_archive"]


@pytest.fixture
def keras_cache(cache, tmp_path, monkeypatch):
    """Return the folder of Keras, which must stay unchanged."""
    folder = tmp_path / "keras"
    (folder / "models").mkdir(parents=True)
    monkeypatch.setenv("KERAS_HOME", str(folder))
    yield folder / "models"
    assert not [path for path in folder.rglob("*") if path.name.endswith(".lock")]


def fetch_model(server, **options):
    return get_file(origin=server.url("/data.bin"), cache_subdir="models", **options)


def test_verified_files_of_keras_are_not_downloaded(server, keras_cache):
    file = keras_cache / "data.bin"
    file.write_bytes(CONTENT)
    for hash in (SHA256, MD5):
        assert fetch_model(server, file_hash=hash) == str(file)
    assert server.requests == 0
    # Neither a file without a hash nor a corrupt file is reused.
    assert fetch_model(server) != str(file)
    file.write_bytes(b"damaged")
    assert Path(fetch_model(server, file_hash=SHA256)).read_bytes() == CONTENT
    assert file.read_bytes() == b"damaged" and visible(keras_cache) == ["data.bin"]


@pytest.mark.parametrize("options", [{"force_download": True}, {"cache_dir": True}])
def test_cache_of_keras_is_optional(server, keras_cache, tmp_path, options):
    (keras_cache / "data.bin").write_bytes(CONTENT)
    if "cache_dir" in options:
        options = {"cache_dir": tmp_path / "other"}
    path = fetch_model(server, file_hash=SHA256, **options)
    assert Path(path).parent != keras_cache and server.requests == 1


def test_archives_of_keras_are_unpacked_elsewhere(server, keras_cache):
    content = tar_of({"a.txt": b"a"})
    (keras_cache / "data.tgz").write_bytes(content)
    hash = hashlib.sha256(content).hexdigest()
    folder = get_file(
        fname="data.tgz",
        origin=server.url("/data.tgz"),
        file_hash=hash,
        extract=True,
        cache_subdir="models",
    )
    assert (Path(folder) / "a.txt").read_bytes() == b"a" and server.requests == 0
    assert visible(keras_cache) == ["data.tgz"]
    assert keras_cache not in Path(folder).parents


def test_folder_of_keras_is_in_the_home_folder(server, cache, tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    file = tmp_path / ".keras" / "models" / "data.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    assert fetch_model(server, file_hash=SHA256) == str(file)
