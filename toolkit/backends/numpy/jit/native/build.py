"""Compilation of programs to one object file."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from toolkit.backends.library import (
    ABI,
    MAX_EMBEDDED_BYTES,
    Library,
    LibrarySource,
    Status,
)
from toolkit.backends.numpy.jit.image import Image
from toolkit.backends.numpy.jit.native import tables
from toolkit.backends.numpy.jit.native.features import required_features
from toolkit.backends.numpy.jit.native.images import Images, zero_bytes
from toolkit.backends.numpy.jit.native.layout import (
    HEADER_WORDS,
    Layout,
    raw,
    row_bytes,
    stored_weights,
)
from toolkit.backends.numpy.jit.native.linking import Linker
from toolkit.backends.numpy.jit.runtime import (
    default_spins,
    has_pthreads,
    join,
    runtime_text,
    substitute,
)
from toolkit.errors import UnsupportedError
from toolkit.plans.operands import ALIGNMENT, align_up

_ADDRESSABLE = 1 << 31  # by 32-bit pointers, whose differences are signed
_LONGEST_MESSAGE = 160
_TYPES = "%Tensor = type { ptr, i32, i32, ptr }"


def build_library(source: LibrarySource) -> Library:
    """Return one object file of programs; see `CodeGenerator.build_library`."""
    source = replace(source, programs=sorted(source.programs, key=lambda p: p.batch))
    _check(source)
    return _Library(source).build()


def _check(source: LibrarySource) -> None:
    nbytes = sum(weight.array.nbytes for weight in source.weights)
    if source.embed and nbytes > MAX_EMBEDDED_BYTES:
        raise UnsupportedError(
            f"{source.prefix}: expected up to {MAX_EMBEDDED_BYTES} bytes of weights "
            f"in an object; received {nbytes}; store them in a separate file"
        )
    states = {i for i, weight in enumerate(source.weights) if weight.is_state}
    for program in source.programs:
        if set(program.updates) != states:
            raise UnsupportedError(
                f"{source.prefix}: expected every program to change the states "
                f"{sorted(states)}; the program for {program.batch} rows changes "
                f"{sorted(set(program.updates))}"
            )


class _Library:
    """Builder of the object file of a library."""

    def __init__(self, source: LibrarySource) -> None:
        self.source = source
        # `init` fails on a processor that does not support this one.
        self.processor = source.processors[0]
        self.stored = stored_weights(source.weights)
        self.weights_bytes = sum(stored.nbytes for stored in self.stored)
        bodies = (body for program in source.programs for body in program.bodies)
        in_place = all(body.in_place for body in bodies)
        self.layout = Layout(source, in_place, zero_bytes(source.programs))
        self.images = Images(source, self.layout, self.stored)
        self.ends: dict[int, int] = defaultdict(int)  # the largest end of each batch
        self.sizes: list[list[int | str]] = []  # the records of library.ll
        self.problems: list[list[int]] = []
        self.problem_texts = b"an index is out of range\0"
        self.stream = b""
        shared = self.layout.end
        for number in range(len(source.processors)):
            self.layout.rewind(shared)
            self.images.reset()
            self._add_processor(number)
        for size in self.sizes:
            size[3] = self.ends[int(size[0])]
        self.threads = has_pthreads(self.processor)

    def _add_processor(self, number: int) -> None:
        """Lay out the sizes for a processor: images, prepared data, then the arena."""
        arena_bytes = 0
        for program in self.source.programs:
            preparation = self._reserve_image(
                self.images.preparation_image(program, number), number
            )
            image = self._reserve_image(self.images.image(program, number), number)
            arena_bytes = max(arena_bytes, program.bodies[number].arena_bytes)
            arena, batch = self.layout.end, program.batch
            end = arena + align_up(arena_bytes)
            self.ends[batch] = max(self.ends[batch], end)
            self.sizes.append([batch, image, arena, end, preparation])

    def _reserve_image(self, image: Image, processor: int) -> str:
        """Reserve memory for an image and return its record."""
        offset = self.layout.take(8 * len(image.words))
        row = tables.record(
            (offset, len(image.words), 8 * image.header, len(self.stream))
        )
        self.stream += self.images.stream(image)
        for number, call in image.problems.items():
            message = _message(call.problem)
            if message not in self.problem_texts:
                self.problem_texts += message
            text = self.problem_texts.find(message)
            self.problems.append([offset + 8 * number, text, processor])
        return f"%Image {row}"

    def build(self) -> Library:
        """Return the object with its metadata."""
        self._check_addresses()
        digest = hashlib.sha256()
        for stored in self.stored:
            digest.update(raw(stored.weight.array))
        source, linker = self.source, Linker(self.processor)
        linker.add(self._text(digest.digest()))
        for code, number in self.images.codes.items():
            linker.add_kernel(code, f"kernel{number}")
        if source.embed:
            contents = (raw(stored.weight.array) for stored in self.stored)
            linker.fill(_marker("weights"), contents)
        linker.fill(_marker("constants"), self.images.constants.chunks)
        return Library(
            prefix=source.prefix,
            inputs=source.inputs,
            outputs=source.outputs,
            code=linker.object(f"{source.prefix}_"),
            triple=self.processor.triple,
            weights=self.stored,
            weights_bytes=self.weights_bytes,
            weights_sha256=digest.digest(),
            batches=list(self.ends),
            workspace_bytes={
                batch: end + ALIGNMENT for batch, end in self.ends.items()
            },
            embeds=source.embed,
            has_threads=self.threads,
            has_states=bool(self.layout.states),
            takes_whole_batches=self.layout.needs_full_batch,
        )

    def _check_addresses(self) -> None:
        """Check that the processor can address all memory."""
        if self.processor.pointer_bits > 32:
            return
        blocks = [("weights", self.weights_bytes)]
        blocks.append(("constants", self.images.constants.nbytes))
        for batch, *_, end, _ in self.sizes:
            blocks.append((f"a workspace for batches of {batch}", int(end) + ALIGNMENT))
        for description, nbytes in blocks:
            if nbytes >= _ADDRESSABLE:
                raise UnsupportedError(
                    f"{self.source.prefix}: {self.processor.triple} has addresses "
                    f"for less than {_ADDRESSABLE} bytes; {description} needs "
                    f"{nbytes}"
                )

    def _text(self, sha256: bytes) -> str:
        """Return the module without the kernels."""
        names = ["library.ll", "pool.ll" if self.threads else "no_pool.ll"]
        asks = self.processor.architecture == "x86_64"
        names.append("processor_x86.ll" if asks else "processor.ll")
        words = self._words(sha256)
        texts = [
            self._export_functions(substitute(_read(name), words)) for name in names
        ]
        runtime = runtime_text(self.processor, is_library=True)
        return join([_TYPES, texts[0], runtime, *texts[1:], *self._tables(sha256)])

    def _words(self, sha256: bytes) -> dict[str, str]:
        """Return the substitution of each `$NAME` in the modules."""
        layout, bits = self.layout, self.processor.pointer_bits
        only_whole = layout.needs_full_batch
        numbers = {
            "MARK": self._workspace_mark(sha256),
            "ABI": ABI,
            "INPUTS": len(self.source.inputs),
            "OUTPUTS": len(self.source.outputs),
            "SIZES": len(self.ends),
            "PROCESSORS": len(self.source.processors),
            "STATES": len(layout.states),
            "STATUSES": len(Status),
            "PROBLEMS": len(self.problems),
            "ZEROS": layout.zeros[0],
            "ZERO_BYTES": layout.zeros[1],
            "PLACES": layout.slot_count,
            "FIRST_PLACE": HEADER_WORDS,
            "WEIGHTS_BYTES": self.weights_bytes,
            "SPINS": default_spins(self.processor),
        }
        return {name: str(number) for name, number in numbers.items()} | {
            "PREFIX": self.source.prefix,
            "EMBEDDED": "@weights" if self.source.embed else "null",
            "FITS": "eq" if only_whole else "sle",
            "NEEDS_ROWS": "true" if only_whole else "false",
            "OTHERWISE": "-1" if only_whole else "0",
            "LONG": f"i{bits}",
            "SIZE_AS_LONG": "add i64 %size, 0"
            if bits == 64
            else f"trunc i64 %size to i{bits}",
        }

    def _export_functions(self, text: str) -> str:
        """Export the functions with the attribute `#1` of a module."""
        is_wasm = self.processor.architecture == "wasm32"

        def head(match: re.Match[str]) -> str:
            export = f'"wasm-export-name"="{match[2]}" ' if is_wasm else ""
            return f"define {match[1]} @{match[2]}({match[3]}) #0 {export}{{"

        return re.sub(r"define (\w+) @(\w+)\((.*)\) #1 \{", head, text)

    def _workspace_mark(self, sha256: bytes) -> int:
        """Return a mark that identifies workspaces of this library."""
        content = repr((self.source.prefix, self.sizes, self.stream, sha256))
        digest = hashlib.sha256(content.encode()).digest()
        return int.from_bytes(digest[:8], "little", signed=True)

    def _tables(self, sha256: bytes) -> list[str]:
        source, layout, images = self.source, self.layout, self.images
        operands = [*source.inputs, *source.outputs]
        rows = zip(map(row_bytes, operands), layout.padded_offsets, strict=True)
        offsets = {
            number: stored.offset
            for number, weight in enumerate(source.weights)
            for stored in self.stored
            if stored.weight is weight
        }
        states = [
            [
                *(offsets[s.weight], s.nbytes, s.offset, s.next_offset),
                *(layout.state_slots[s.weight], layout.state_slots[s.weight] + 1),
            ]
            for s in layout.states
        ]
        constants = max(64, images.constants.nbytes)
        definitions = [
            *tables.tensors("input", source.inputs),
            *tables.tensors("output", source.outputs),
            *tables.messages(),
            _records("sizes", "%Size", self.sizes),
            _records("operands", "%Operand", rows),
            _records("states", "%State", states),
            _records("problems", "%Problem", self.problems),
            _records("needs", "%Needs", map(required_features, source.processors)),
            tables.table("batches", "i64", map(str, self.ends)),
            tables.table("wide", "i64", map(str, images.wide)),
            tables.table("kernels", "ptr", (f"@{code.key}" for code in images.codes)),
            tables.data("stream", self.stream),
            tables.data("problem.texts", self.problem_texts),
            tables.data("weights.sha256", sha256),
            tables.replaced_at_link("constants", _marker("constants"), constants),
            *(f"declare void @{c.key}(ptr, i64, i64, i64)" for c in images.codes),
        ]
        if source.embed:
            nbytes = self.weights_bytes
            definitions.append(
                tables.replaced_at_link("weights", _marker("weights"), nbytes)
            )
        return definitions


def _records(name: str, kind: str, rows: Iterable[Iterable[int | str]]) -> str:
    return tables.table(name, kind, map(tables.record, rows))


def _message(problem: str) -> bytes:
    """Return the message of a bad index; bytes 1 and 2 are its placeholders."""
    # A library does not restore the original of an index: see `format_problem`.
    message = problem.replace("{original}", "{index}")
    message = message.replace("{index}", "\1").replace("{limit}", "\2")
    return message.encode()[:_LONGEST_MESSAGE] + b"\0"


def _marker(name: str) -> bytes:
    return hashlib.sha512(f"place of {name}".encode()).digest()


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
