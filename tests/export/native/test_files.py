"""Test the files of a library: they are linked, written all or none, and owned."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from tests.export.native import stub
from toolkit.errors import (
    ArgumentError,
    MissingLinkerError,
    UnsupportedError,
    UnwritableFileError,
)
from toolkit.export.native import link
from toolkit.export.native.files import LibraryFiles
from toolkit.export.native.static_archive import static_archive

INPUTS = [np.ones((2, 3), "float32"), np.zeros(2, "int32")]
EXPECTED = np.stack([stub.WEIGHTS, stub.WEIGHTS])


@pytest.fixture
def library(tmp_path):
    return stub.library(tmp_path)


@pytest.fixture
def folder(tmp_path):
    folder_path = tmp_path / "own"
    folder_path.mkdir(mode=0o700)
    return folder_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(library, path, linker=None):
    LibraryFiles("m.export", path, None).write(library, linker)


@pytest.mark.parametrize("ending", [".so", ".o", ".a"])
def test_written_files(library, folder, ending):
    for _ in range(2):  # an older one is replaced
        write(library, folder / f"digits{ending}")
    assert names(folder) == sorted(["digits.h", f"digits{ending}"])


def test_shared_library_runs(library, folder):
    write(library, folder / "digits.so")
    model = toolkit.load_native(folder / "digits.so")
    np.testing.assert_array_equal(model.predict(INPUTS), EXPECTED)


def test_header_name_matches_the_linker_name(library, folder):
    write(library, folder / "libdigits.a")
    assert names(folder) == ["digits.h", "libdigits.a"]


@pytest.mark.parametrize("ending", [".so", ".o", ".a"])
def test_same_library_has_the_same_bytes(library, folder, ending):
    for name in ("a", "b"):
        (folder / name).mkdir()
        write(library, folder / name / f"digits{ending}")
    for name in (f"digits{ending}", "digits.h"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()


def test_library_contains_no_paths(library, folder):
    write(library, folder / "digits.so")
    for path in folder.iterdir():
        assert os.fsencode(folder) not in path.read_bytes()


def test_weights_in_a_file(tmp_path, folder):
    write(stub.library(tmp_path, embeds=0), folder / "digits.so")
    assert names(folder) == ["digits.h", "digits.safetensors", "digits.so"]
    model = toolkit.load_native(folder / "digits.so")
    np.testing.assert_array_equal(model.predict(INPUTS), EXPECTED)


@pytest.mark.parametrize("name", ["digits.h", "digits.safetensors"])
def test_foreign_files_are_kept(tmp_path, folder, name):
    (folder / name).write_text("mine")
    with pytest.raises(UnwritableFileError, match=f"{name}.*not written by an export"):
        write(stub.library(tmp_path, embeds=0), folder / "digits.so")
    assert names(folder) == [name]
    assert (folder / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["digits.h", "digits.safetensors"])
def test_folders_are_kept(tmp_path, folder, name):
    (folder / name).mkdir()
    with pytest.raises(UnwritableFileError, match=f"{name}.*not written by an export"):
        write(stub.library(tmp_path, embeds=0), folder / "digits.so")
    assert names(folder) == [name]


@pytest.mark.parametrize(
    "first, second", [("digits.so", "digits.o"), ("digits.so", "libdigits.so")]
)
def test_files_of_another_library_are_kept(tmp_path, folder, first, second):
    library = stub.library(tmp_path, embeds=0)
    write(library, folder / first)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    larger = replace(library, workspace_bytes={1: 24, 8: 32})
    with pytest.raises(UnwritableFileError, match=f"digits.h' belongs.*{first}'"):
        write(larger, folder / second)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    (folder / first).unlink()
    write(larger, folder / second)
    assert names(folder) == sorted(["digits.h", "digits.safetensors", second])


def test_kinds_of_one_library_share_its_header(library, folder):
    for name in ("digits.so", "digits.o", "libdigits.a", "digits.o"):
        write(library, folder / name)
    first = (folder / "digits.h").read_text().partition("\n")[0]
    assert '"digits.o", "digits.so", "libdigits.a"' in first
    with pytest.raises(UnwritableFileError, match="belongs to another library"):
        write(replace(library, batches=[1]), folder / "digits.so")


def test_name_with_a_comma(library, folder):
    write(library, folder / "a,b.so")
    model = toolkit.load_native(folder / "a,b.so", prefix="digits")
    np.testing.assert_array_equal(model.predict(INPUTS), EXPECTED)
    assert b"\0a,b.so\0" in (folder / "a,b.so").read_bytes()


@pytest.mark.parametrize("name", ["digits.dylib", "digits.wasm"])
def test_unsupported_kind_of_file_is_refused(library, folder, name):
    with pytest.raises(ArgumentError, match="x86_64-unknown-linux-gnu has no"):
        write(library, folder / name)
    assert names(folder) == []


# --- static libraries -----------------------------------------------------------------


@pytest.mark.parametrize("stem", ["digits", "a_name_of_many_letters"])
def test_ar_reads_the_archive(library, folder, stem):
    if shutil.which("ar") is None:
        pytest.skip("there is no ar")
    symbols = ["digits_abi", "digits_run"]
    archive = static_archive(f"{stem}.o", library.code, symbols)
    (folder / "libdigits.a").write_bytes(archive)
    process = subprocess.run(
        ["ar", "tv", "libdigits.a"], cwd=folder, capture_output=True, text=True
    )
    assert process.stdout.split()[-1] == f"{stem}.o"
    (folder / "main.c").write_text(
        "unsigned digits_abi(void);\nint main(void) { return digits_abi() != 1; }\n"
    )
    command = [stub.compiler(), "main.c", "-L.", "-ldigits", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["./main"], cwd=folder, check=True)


# --- linkers --------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """Remove all programs from the search path."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(link, "find_package_folders", lambda name: [])


def test_missing_linker_is_reported(library, folder, bare):
    with pytest.raises(MissingLinkerError) as caught:
        write(library, folder / "digits.so")
    command = "python -m ziglang cc -target x86_64-linux-gnu -shared .*-o digits.so"
    assert caught.match(f"pip install ziglang.*{command} digits.o")
    assert caught.match("digits.o' is written|digits.o', which is written")
    assert names(folder) == ["digits.h", "digits.o"]
    with pytest.raises(MissingLinkerError, match="exists already"):
        write(library, folder / "digits.so")


def test_missing_linker_with_an_older_library(library, folder, monkeypatch):
    write(library, folder / "digits.so")
    library = replace(library, batches=[1])
    before = (folder / "digits.h").read_bytes()
    monkeypatch.setattr(link, "find_linker", lambda triple: None)
    with pytest.raises(MissingLinkerError, match="nothing was written:.*belongs to"):
        write(library, folder / "digits.so")
    assert names(folder) == ["digits.h", "digits.so"]
    assert (folder / "digits.h").read_bytes() == before


@pytest.mark.parametrize("command", ["cc", "clang", "ld.lld", "cc -fuse-ld=lld"])
def test_named_linker_is_used(library, folder, command):
    if not all(map(shutil.which, [command.split()[0], "ld.lld", "cc"])):
        pytest.skip("it is not installed")
    write(library, folder / "digits.so", command)
    model = toolkit.load_native(folder / "digits.so")
    np.testing.assert_array_equal(model.predict(INPUTS), EXPECTED)


def test_unknown_linker_is_refused(library, folder):
    with pytest.raises(
        ArgumentError, match="linker: expected an executable command.*'no-such-ld'"
    ):
        write(library, folder / "digits.so", "no-such-ld")


def test_failure_of_the_linker_is_reported(library, folder):
    failing = f"{sys.executable} -c exit(3)"
    with pytest.raises(UnsupportedError, match="linker failed with 3"):
        write(library, folder / "digits.so", failing)
    assert names(folder) == []


def test_linker_runs_without_a_shell(library, folder):
    with pytest.raises((ArgumentError, UnsupportedError)):
        write(library, folder / "digits.so", f"cc; touch {folder}/made")
    assert names(folder) == []


def test_environment_selects_the_linker(library, folder, monkeypatch, tmp_path):
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec cc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    stub.compiler()
    write(library, folder / "digits.so")
    assert "-shared" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    "triple, named",
    [
        ("x86_64-unknown-linux-gnu", "x86_64-linux-gnu"),
        ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu"),
        ("armv7-unknown-linux-gnueabihf", "arm-linux-gnueabihf"),
        ("riscv64-unknown-linux-gnu", "riscv64-linux-gnu"),
        ("arm64-apple-darwin24", "aarch64-macos"),
        ("wasm32-unknown-unknown", "wasm-ld"),
    ],
)
def test_link_command_is_printed(triple, named):
    linking = link.LinkTask(triple, ["a.o"], "a.so", ["a_run"])
    assert named in link.manual_command(linking)


def test_local_compiler_does_not_link_for_other_machines():
    linker = link.find_linker("aarch64-unknown-linux-gnu")
    assert linker is None or Path(linker.command[0]).name != "cc"


@pytest.mark.parametrize(
    "system, text, words",
    [
        ("posix", r"'/my tools/cc' -g \ x", ("/my tools/cc", "-g", " x")),
        ("nt", r'"C:\my tools\cc.exe" -g', (r"C:\my tools\cc.exe", "-g")),
    ],
)
def test_command_is_split_like_a_shell_does(monkeypatch, system, text, words):
    monkeypatch.setattr(link, "os", SimpleNamespace(name=system))
    assert link._split_command(text) == words
