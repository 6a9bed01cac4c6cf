"""Linkers: from an object file to a shared library or a WebAssembly module.

The search covers the environment, the path and the `ziglang` wheel. A linker is called
with a list of arguments, without a shell.
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

_LINKER = re.compile(r"(.*-)?(ld|ld\.\w+|lld)(\.exe)?")  # a linker, not a compiler
_TIMEOUT = 600  # seconds; zig builds its C library on first use
_QUERY_TIMEOUT = 20  # seconds
# Machine names of compiler drivers -> the architecture of the triple.
_ARCHITECTURE_ALIASES = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "armv7": "arm",
    "armv7a": "arm",
}
# Cross compilers by their names in Linux distributions.
_GNU_TRIPLES = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "arm": "arm-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
}
# Omit the compiler's startup files and unused symbols.
_DRIVER_FLAGS = ("-shared", "-nostartfiles", "-Wl,-s", "-Wl,--as-needed")
_ELF_FLAGS = ("-z", "noexecstack", "-z", "relro", "-z", "now")
_COMPACT_FLAGS = ("-z", "noseparate-code")  # saves 8 KB; zig does not support it
_LIBRARIES = ("-lpthread", "-lm")  # omitted if unused
_WASM_FLAGS = ("--no-entry", "--strip-all", "--export=__heap_base")


@record
class Linker:
    """Linker command for one machine.

    Attributes:
        command: the path of the program, and its first arguments.
        is_driver: whether it is a C compiler that calls the linker.
        is_zig: whether it is a zig command.
    """

    command: tuple[str, ...]
    is_driver: bool
    is_zig: bool = False


@record
class LinkTask:
    """Inputs and output of a link.

    Attributes:
        triple: the target triple.
        objects: the paths of the object files.
        output: the path of the result.
        exports: the exported functions.
    """

    triple: str
    objects: Sequence[str]
    output: str
    exports: Sequence[str]

    def arguments(self, linker: Linker) -> list[str]:
        """Return the full command."""
        if _is_wasm(self.triple):
            return [*linker.command, *self._wasm_arguments()]
        if "apple" in self.triple:
            name_flags = _linker_flags(
                "-install_name", f"@rpath/{Path(self.output).name}"
            )
            return [
                *linker.command,
                "-dynamiclib",
                *name_flags,
                *self._file_arguments(),
            ]
        soname_flags = ("-soname", Path(self.output).name)
        compact = () if linker.is_zig else _COMPACT_FLAGS
        flags = [*_ELF_FLAGS, *compact, "--build-id=none"]
        if linker.is_driver:
            flags = [f"-Wl,{flag}" for flag in _join_values(*flags)]
            flags = [*_DRIVER_FLAGS, *flags, *_linker_flags(*soname_flags)]
            return [*linker.command, *flags, *self._file_arguments(), *_LIBRARIES]
        return [
            *linker.command,
            "-shared",
            "-s",
            *flags,
            *soname_flags,
            *self._file_arguments(),
        ]

    def _file_arguments(self) -> list[str]:
        return ["-o", self.output, *self.objects]

    def _wasm_arguments(self) -> list[str]:
        exports = [f"--export={name}" for name in self.exports]
        return [*_WASM_FLAGS, *exports, *self._file_arguments()]


def _linker_flags(*flags: str) -> list[str]:
    """Return flags that a driver passes to the linker unchanged, with commas."""
    return [word for flag in flags for word in ("-Xlinker", flag)]


def _join_values(*flags: str) -> Iterator[str]:
    """Yield flags with their values in the driver's form: "-z,now"."""
    option = ""
    for flag in flags:
        if option:
            yield f"{option},{flag}"
            option = ""
        elif flag == "-z":
            option = flag
        else:
            yield flag


def link(task: LinkTask, linker_command: str | None = None) -> None:
    """Link a shared library or a module.

    Args:
        task: the inputs and the output.
        linker_command: the linker command; None searches for one.

    Raises:
        MissingLinkerError: no linker is available.
        UnsupportedError: the linker fails.
    """
    linker = (
        _parse_command(linker_command) if linker_command else find_linker(task.triple)
    )
    if linker is None:
        raise MissingLinkerError(f"no linker for {task.triple} is installed")
    command = task.arguments(linker)
    try:
        process = _run(command, _TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{shlex.join(command)}: {error}") from error
    if process.returncode or not Path(task.output).is_file():
        output = (process.stderr or process.stdout).strip()[-2000:]
        raise UnsupportedError(
            f"the linker failed with {process.returncode}: "
            f"{shlex.join(command)}\n{output}"
        )


def manual_command(task: LinkTask) -> str:
    """Return a command that links on any machine with the `ziglang` wheel."""
    linker = _zig_linker(task.triple, ("python", "-m", "ziglang"))
    return shlex.join(task.arguments(linker))


def _run(command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command with an absolute path, without programs of the current folder."""
    return subprocess.run(
        command,
        env=clean_environment(PYTHONSAFEPATH="1"),  # `python -m ziglang` is Python
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def _parse_command(text: str) -> Linker:
    """Parse a command from the user: a compiler, or a linker by its name."""
    command = _resolve_program(_split_command(text))
    if command is None:
        raise ArgumentError(
            f"linker: expected an executable command, such as 'cc'; received {text!r}"
        )
    words = (Path(word).name for word in command if not word.startswith("-"))
    is_driver = not any(map(_LINKER.fullmatch, words))
    return Linker(command, is_driver, is_zig="ziglang" in command)


def _resolve_program(command: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a command with the absolute path of its program, or None if missing."""
    program = find_program(command[0]) if command else None
    return None if program is None else (program, *command[1:])


def _split_command(text: str) -> tuple[str, ...]:
    """Split a command as a shell does; on Windows \\ is a path separator."""
    if os.name == "posix":
        return tuple(shlex.split(text))
    return tuple(word.strip('"') for word in shlex.split(text, posix=False))


def find_linker(triple: str) -> Linker | None:
    """Return the first installed linker for this machine."""
    return next(_candidates(triple), None)


def _candidates(triple: str) -> Iterator[Linker]:
    if _is_wasm(triple):
        yield from _plain_linkers("wasm-ld")
    else:
        yield from _compiler_drivers(triple)
        if "linux" in triple:
            yield from _plain_linkers("ld.lld")
    for folder in find_package_folders("ziglang"):
        program = find_program(str(folder / "zig"))
        if program is not None:
            yield _zig_linker(triple, (program,))


def _plain_linkers(name: str) -> Iterator[Linker]:
    program = find_program(name)
    if program is not None:
        yield Linker((program,), is_driver=False)


def _compiler_drivers(triple: str) -> Iterator[Linker]:
    """Yield C compilers for this machine; clang accepts a target option."""
    cc_command = _split_command(os.environ.get("CC", ""))
    gnu = _GNU_TRIPLES.get(_architecture(triple), "")
    for words in (cc_command, ("cc",), (f"{gnu}-gcc",), ("clang",)):
        command = _resolve_program(words)
        if command is not None and _compiles_for(command, triple):
            yield Linker(command, is_driver=True)


def _compiles_for(command: tuple[str, ...], triple: str) -> bool:
    try:
        process = _run([*command, "-dumpmachine"], _QUERY_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return False
    machine = process.stdout.strip()
    return _architecture(machine) == _architecture(triple) and any(
        name in machine and name in triple for name in ("linux", "apple", "windows")
    )


def _architecture(triple: str) -> str:
    first = triple.partition("-")[0]
    return _ARCHITECTURE_ALIASES.get(first, first)


def _is_wasm(triple: str) -> bool:
    return triple.startswith("wasm")


def _zig_linker(triple: str, program: tuple[str, ...]) -> Linker:
    """Return the linker of the `ziglang` wheel, which supports every machine."""
    if _is_wasm(triple):
        return Linker((*program, "wasm-ld"), is_driver=False, is_zig=True)
    system = "macos" if "apple" in triple else "linux-gnu"
    if _architecture(triple) == "arm":
        system += "eabihf"
    target = f"{_architecture(triple)}-{system}"
    command = (*program, "cc", "-target", target)
    return Linker(command, is_driver=True, is_zig=True)
