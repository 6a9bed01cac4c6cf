"""Code for AVX-512 and AMX on an x86 processor without them.

Kernels are generated for a processor with all of these instructions.
emulated_processor.ll emulates the missing instructions in plain operations, and LLVM
splits vectors that are too wide. The emulation is slow. It works only for kernels in
the process of the test. Whole folders of tests can use it, too:

scripts/test -p tests.emulated_processor tests/compiler
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_FEATURES = ("amx-tile", "amx-bf16", "amx-int8", "avx512bf16", "avx512vnni")
_LACKING = r"[\w.]*(?:tile|avx512|tdp)[\w.]*"
_CALLED = re.compile(rf"@llvm\.x86\.({_LACKING})\(")
_DECLARED = re.compile(rf"^declare .*@llvm\.x86\.{_LACKING}\(.*\n", re.MULTILINE)
_TILED = re.compile(r"@emulated\.((?:ld)?tile\w*|tdp\w+)\(")
_TILES = "  %emulated.tiles = alloca [8 x [256 x i32]], align 64\n"
_LANES = re.compile(r"<(\d+) x i32> <EVERY_(\d+)_FROM_(\d+)>")
_SPLAT = re.compile(r"(<(\d+) x [^<\n]*)splat \((\S+ [^)]+)\)")


def emulate_instructions(text: str) -> str:
    """Return a module of LLVM IR in which missing instructions are emulated."""
    if not _CALLED.search(text):
        return text
    text = _DECLARED.sub("", text).replace(" x bfloat>", " x i16>")
    text = _CALLED.sub(r"@emulated.\1(", text)
    with_tiles = _TILED.sub(r"@emulated.\1(ptr %emulated.tiles, ", text)
    if with_tiles != text:
        text = with_tiles.replace("tiles, )", "tiles)")
        text = text.replace("entry:\n", "entry:\n" + _TILES)
    declared = set(re.findall(r"^declare .*$", text, re.MULTILINE))
    added = [x for x in _load_emulations().splitlines() if x not in declared]
    return "\n".join([text, *added, ""])


@cache
def _load_emulations() -> str:
    text = Path(__file__).with_suffix(".ll").read_text("utf-8")
    return _SPLAT.sub(_splat, _LANES.sub(_lanes, text))


def _lanes(match: re.Match[str]) -> str:
    """Return the lane numbers from `start` in steps of `step`."""
    count, step, first = map(int, match.groups())
    numbers = range(first, first + count * step, step)
    return f"<{count} x i32> <{', '.join(f'i32 {n}' for n in numbers)}>"


def _splat(match: re.Match[str]) -> str:
    """Return a constant in every lane, in the syntax of older LLVM versions."""
    before, count, constant = match.groups()
    return f"{before}<{', '.join([constant] * int(count))}>"


@contextmanager
def processor_with_tiles() -> Iterator[None]:
    """Give the processor of this machine tiles, native or emulated, in this context."""
    from toolkit.backends.numpy.jit.processor import Processor

    if Processor.host().tiles:
        yield
        return
    with _emulating(tiles=True):
        yield


@contextmanager
def processor_with_dots() -> Iterator[None]:
    """Give the processor fast bfloat16 dot products, without tiles, in this context."""
    from toolkit.backends.numpy.jit.processor import Processor

    if Processor.host().has_dots:
        yield
        return
    with _emulating(cpu="znver4"):
        yield


def without_rounding() -> Any:
    """Return this processor as if it multiplied bfloat16 no faster than float32."""
    from toolkit.backends.numpy.jit.processor import Processor

    host = Processor.host()
    features = [x for x in host.features.split(",") if not x.endswith("bf16")]
    return replace(host, tiles=False, features=",".join(features))


# Ways to multiply operands that are rounded to bfloat16: parameters of fixtures. The
# second one differs only in its instructions.
WAYS = [
    pytest.param(processor_with_tiles, id="tiles"),
    pytest.param(processor_with_dots, id="dots", marks=pytest.mark.one_in(4)),
]


@contextmanager
def _emulating(**facts: Any) -> Iterator[None]:
    """Give this machine AVX-512 and the requested features in this context."""
    from toolkit.backends.numpy.jit import engine
    from toolkit.backends.numpy.jit.processor import LEVELS, PROCESSORS, Processor

    host, level = Processor.host(), "x86-64-v4"
    if host.architecture != "x86_64":
        pytest.skip("AVX-512 is emulated on x86 only")
    better = replace(
        PROCESSORS[level],
        triple=host.triple,
        features=",".join(f"+{x}" for x in (*LEVELS[level], *_FEATURES)),
        cache_bytes=host.cache_bytes,
        **facts,
    )
    compile_there, machine_there = engine._compile, engine.machine

    def compile_here(source: str, processor: Processor) -> bytes:
        return compile_there(emulate_instructions(source), processor)

    def machine_here(processor: Processor) -> Any:
        return machine_there(host)

    with pytest.MonkeyPatch.context() as patched:
        # Code compiled for this machine does not run on such a processor.
        patched.setattr(engine, "FORMAT", f"{engine.FORMAT} emulated")
        patched.setattr(engine, "_compile", compile_here)
        patched.setattr(engine, "machine", machine_here)
        patched.setattr(engine, "_thread_state", engine._ThreadState())
        patched.setattr(Processor, "host", staticmethod(cache(lambda: better)))
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Emulate the processor for all tests, as a plug-in of pytest."""
    emulating = ExitStack()
    emulating.enter_context(processor_with_tiles())
    config.add_cleanup(emulating.close)
