"""Linking of several modules to one object file, for any processor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from toolkit.backends.numpy.jit.code import ATTRIBUTES, Code
from toolkit.backends.numpy.jit.engine import emit
from toolkit.backends.numpy.jit.llvm import binding_for_all
from toolkit.backends.numpy.jit.processor import Processor

# Architecture -> the baseline processor, whose code all processors run.
_BASELINES = {"x86_64": "x86-64"}


class Linker:
    """Linker of LLVM IR modules.

    Args:
        processor: the target of the object; kernels can have a better target.

    Only kernels use the features of their processor. Their callers, such as `init`, use
    the baseline of the architecture if it has one. They must run on every processor, to
    report missing features.
    """

    def __init__(self, processor: Processor) -> None:
        self.llvm = binding_for_all()
        self.context = self.llvm.create_context()
        if processor.architecture in _BASELINES:
            cpu = _BASELINES[processor.architecture]
            processor = replace(processor, cpu=cpu, features="")
        self.processor, self.triple = processor, processor.triple
        is_wasm = processor.architecture == "wasm32"
        self.machine = self.llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=processor.cpu,
            features=processor.features,
            opt=2,
            reloc="static" if is_wasm else "pic",
            codemodel="default",
            abiname=processor.abi,
        )
        self.layout = str(self.machine.target_data)
        self.module: Any = None
        self.fillings: list[tuple[bytes, Iterable[bytes | memoryview]]] = []

    def add(self, text: str) -> None:
        """Link a module."""
        module = self.llvm.parse_assembly(text, self.context)
        module.triple = self.triple
        module.data_layout = self.layout
        if self.module is None:
            self.module = module
        else:
            self.module.link_in(module)

    def add_kernel(self, code: Code, name: str) -> None:
        """Link a generated function under a shorter name."""
        text, target = code.text(), code.processor
        if (target.cpu, target.features) != (
            self.processor.cpu,
            self.processor.features,
        ):
            target_attributes = (
                f'"target-cpu"="{target.cpu}" "target-features"="{target.features}"'
            )
            text = text.replace(ATTRIBUTES, f"{ATTRIBUTES[:-2]} {target_attributes} }}")
        self.add(text)
        self.module.get_function(code.key).name = name

    def fill(self, marker: bytes, contents: Iterable[bytes | memoryview]) -> None:
        """Replace the constant that starts with a marker."""
        self.fillings.append((marker, contents))

    def object(self, prefix: str) -> bytes:
        """Return the object file; only names with a prefix are exported."""
        for function in self.module.functions:
            if not function.is_declaration and not function.name.startswith(prefix):
                function.linkage = "internal"
        self.module.verify()
        content = bytearray(emit(self.machine, self.module))
        for marker, chunks in self.fillings:
            offset = content.find(marker)
            if offset < 0 or content.find(marker, offset + 1) >= 0:
                raise AssertionError("an object contains each relocation once")
            content[offset : offset + len(marker)] = bytes(len(marker))
            for chunk in chunks:
                content[offset : offset + len(chunk)] = chunk
                offset += len(chunk)
        return bytes(content)
