"""Linkers: from an object file to a shared library or a WebAssembly module.

A linker is looked for in the environment, on the path, and in the `ziglang` wheel; it
is called with a list of arguments, through no shell.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, MissingLinkerError, UnsupportedError
from toolkit.processes import clean_environment, find_package_folders, find_program

_LINKER = re.compile(r"(.*-)?(ld|ld\.\w+|lld)(\.exe)?")  # no compiler
_TIMEOUT = 600  # seconds; zig builds its C library on first use
_QUESTION_TIMEOUT = 20  # seconds
# What a driver says of the machine that it makes code for, by the triple's first part.
_SAME = {"amd64": "x86_64", "arm64": "aarch64", "armv7": "arm", "armv7a": "arm"}
# Of cross compilers, as Linux distributions call them.
_GNU = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "arm": "arm-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
}
# No program headers of a compiler's own, no more of the table of symbols than is used.
_DRIVER_FLAGS = ("-shared", "-nostartfiles", "-Wl,-s", "-Wl,--as-needed")
_ELF_FLAGS = ("-z", "noexecstack", "-z", "relro", "-z", "now")
_COMPACT = ("-z", "noseparate-code")  # 8 KB less; zig's does not know it
_LIBRARIES = ("-lpthread", "-lm")  # left out where nothing is used of them
_WASM_FLAGS = ("--no-entry", "--strip-all", "--export=__heap_base")


@record
class Linker:
    """A command that links, for one machine.

    Attributes:
        command: the path of the program, and its first arguments.
        is_driver: whether it is a C compiler, that is to call the linker.
        is_zig: whether it is one of zig's.
    """

    command: tuple[str, ...]
    is_driver: bool
    is_zig: bool = False


@record
class Linking:
    """What is to be linked.

    Attributes:
        triple: of the machine that it is for.
        objects: paths of the object files.
        output: the path of what is made.
        exports: the functions that others call.
    """

    triple: str
    objects: Sequence[str]
    output: str
    exports: Sequence[str]

    def arguments(self, linker: Linker) -> list[str]:
        """The whole command."""
        if _is_wasm(self.triple):
            return [*linker.command, *self._wasm()]
        if "apple" in self.triple:
            name = _handed_on("-install_name", f"@rpath/{Path(self.output).name}")
            return [*linker.command, "-dynamiclib", *name, *self._files()]
        named = ("-soname", Path(self.output).name)
        compact = () if linker.is_zig else _COMPACT
        flags = [*_ELF_FLAGS, *compact, "--build-id=none"]
        if linker.is_driver:
            flags = [f"-Wl,{flag}" for flag in _joined(*flags)]
            flags = [*_DRIVER_FLAGS, *flags, *_handed_on(*named)]
            return [*linker.command, *flags, *self._files(), *_LIBRARIES]
        return [*linker.command, "-shared", "-s", *flags, *named, *self._files()]

    def _files(self) -> list[str]:
        return ["-o", self.output, *self.objects]

    def _wasm(self) -> list[str]:
        exports = [f"--export={name}" for name in self.exports]
        return [*_WASM_FLAGS, *exports, *self._files()]


def _handed_on(*flags: str) -> list[str]:
    """Flags that a driver hands on as they are, with the commas in them."""
    return [word for flag in flags for word in ("-Xlinker", flag)]


def _joined(*flags: str) -> Iterator[str]:
    """Flags with their values, as a driver hands them on: "-z,now"."""
    waiting = ""
    for flag in flags:
        if waiting:
            yield f"{waiting},{flag}"
            waiting = ""
        elif flag == "-z":
            waiting = flag
        else:
            yield flag


def link(linking: Linking, given: str | None = None) -> None:
    """Make a shared library or a module.

    Args:
        linking: what from what.
        given: the command of a linker; None: one that is found.

    Raises:
        MissingLinkerError: none is found.
        UnsupportedError: it fails.
    """
    linker = _parsed(given) if given else find_linker(linking.triple)
    if linker is None:
        raise MissingLinkerError(f"no linker for {linking.triple} is installed")
    command = linking.arguments(linker)
    try:
        done = _run(command, _TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{shlex.join(command)}: {error}") from error
    if done.returncode or not Path(linking.output).is_file():
        told = (done.stderr or done.stdout).strip()[-2000:]
        raise UnsupportedError(
            f"the linker failed with {done.returncode}: {shlex.join(command)}\n{told}"
        )


def by_hand(linking: Linking) -> str:
    """A command that links it on any machine with the `ziglang` wheel."""
    linker = _zig(linking.triple, ("python", "-m", "ziglang"))
    return shlex.join(linking.arguments(linker))


def _run(command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command of an absolute path, which starts nothing of the current folder."""
    return subprocess.run(
        command,
        env=clean_environment(PYTHONSAFEPATH="1"),  # `python -m ziglang` is Python
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def _parsed(text: str) -> Linker:
    """A command that the user names: a compiler, or a linker by its name."""
    command = _resolved(_words(text))
    if command is None:
        raise ArgumentError(
            f"linker: expected a command that can be run, such as 'cc'; received "
            f"{text!r}"
        )
    words = (Path(word).name for word in command if not word.startswith("-"))
    is_driver = not any(map(_LINKER.fullmatch, words))
    return Linker(command, is_driver, is_zig="ziglang" in command)


def _resolved(command: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a command with the path of its program; None if there is no such one."""
    program = find_program(command[0]) if command else None
    return None if program is None else (program, *command[1:])


def _words(text: str) -> tuple[str, ...]:
    """A command as a shell takes it apart: on Windows \\ is no escape, but a folder."""
    if os.name == "posix":
        return tuple(shlex.split(text))
    return tuple(word.strip('"') for word in shlex.split(text, posix=False))


def find_linker(triple: str) -> Linker | None:
    """The first of those that are installed and link for this machine."""
    return next(_candidates(triple), None)


def _candidates(triple: str) -> Iterator[Linker]:
    if _is_wasm(triple):
        yield from _plain("wasm-ld")
    else:
        yield from _drivers(triple)
        if "linux" in triple:
            yield from _plain("ld.lld")
    for folder in find_package_folders("ziglang"):
        program = find_program(str(folder / "zig"))
        if program is not None:
            yield _zig(triple, (program,))


def _plain(name: str) -> Iterator[Linker]:
    found = find_program(name)
    if found is not None:
        yield Linker((found,), is_driver=False)


def _drivers(triple: str) -> Iterator[Linker]:
    """C compilers that say that they are for this machine; clang can be told."""
    chosen = _words(os.environ.get("CC", ""))
    gnu = _GNU.get(_architecture(triple), "")
    for words in (chosen, ("cc",), (f"{gnu}-gcc",), ("clang",)):
        command = _resolved(words)
        if command is not None and _is_for(command, triple):
            yield Linker(command, is_driver=True)


def _is_for(command: tuple[str, ...], triple: str) -> bool:
    try:
        done = _run([*command, "-dumpmachine"], _QUESTION_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = done.stdout.strip()
    return _architecture(found) == _architecture(triple) and any(
        name in found and name in triple for name in ("linux", "apple", "windows")
    )


def _architecture(triple: str) -> str:
    first = triple.partition("-")[0]
    return _SAME.get(first, first)


def _is_wasm(triple: str) -> bool:
    return triple.startswith("wasm")


def _zig(triple: str, program: tuple[str, ...]) -> Linker:
    """The linkers of the `ziglang` wheel, which know every machine."""
    if _is_wasm(triple):
        return Linker((*program, "wasm-ld"), is_driver=False, is_zig=True)
    system = "macos" if "apple" in triple else "linux-gnu"
    if _architecture(triple) == "arm":
        system += "eabihf"
    target = f"{_architecture(triple)}-{system}"
    command = (*program, "cc", "-target", target)
    return Linker(command, is_driver=True, is_zig=True)
