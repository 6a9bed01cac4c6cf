"""Files of a native library, written together."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import toolkit
from toolkit.backends.library import Library
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, MissingLinkerError, UnwritableFileError
from toolkit.export.native.binding import FUNCTIONS
from toolkit.export.native.header import (
    MARK,
    HeaderData,
    header_text,
    libraries_of_header,
)
from toolkit.export.native.link import LinkTask, link, manual_command
from toolkit.export.native.names import KINDS, MODULE, OBJECT, SHARED, STATIC, stem_of
from toolkit.export.native.static_archive import static_archive
from toolkit.export.native.weights import is_weights_file, write_weights
from toolkit.files.sets import FileSet

_MAX_LINE_LENGTH = 4096


@record
class LibraryFiles:
    """Files of a library and their content.

    Args:
        label: the label in messages.
        path: the path from the user.
        processor: the name of the processor, or None.
    """

    label: str
    path: Path
    processor: str | None

    def __post_init__(self) -> None:
        if self.path.suffix.lower() not in KINDS:
            raise ArgumentError(
                f"{self.label}: expected a path that ends in one of {sorted(KINDS)}; "
                f"received {str(self.path)!r}"
            )

    @property
    def kind(self) -> str:
        """The kind of the file at the path."""
        return KINDS[self.path.suffix.lower()]

    @property
    def target(self) -> str | None:
        """The target processor, which a WebAssembly module implies."""
        return (
            "wasm32"
            if self.kind == MODULE and self.processor is None
            else self.processor
        )

    @property
    def stem(self) -> str:
        """The common stem of the file names."""
        return stem_of(self.path)

    def sibling_path(self, ending: str) -> Path:
        """Return the path of another file of the library."""
        return self.path.with_name(self.stem + ending)

    def write(self, library: Library, linker: str | None) -> None:
        """Write all files, or none; without a linker, write the object file."""
        self._check_kind(library)
        try:
            code = self._link(library, linker)
        except MissingLinkerError as error:
            object_path = self.sibling_path(".o")
            if object_path.exists():
                raise MissingLinkerError(
                    f"{error}; {str(object_path)!r} exists already, so nothing was "
                    "written"
                ) from None
            try:
                self._write_files(library, object_path, library.code)
            except UnwritableFileError as write_error:
                raise MissingLinkerError(
                    f"{error}; nothing was written: {write_error}"
                ) from None
            raise MissingLinkerError(
                f"{error}; it takes {str(object_path)!r}, which is written"
            ) from None
        self._write_files(library, self.path, code)

    def _check_kind(self, library: Library) -> None:
        triple, is_module = library.triple, self.kind == MODULE
        is_apple = self.path.suffix.lower() == ".dylib"
        wrong = (
            (self.kind == SHARED and triple.startswith("wasm"))
            or (is_module and not triple.startswith("wasm"))
            or (self.kind == SHARED and is_apple != ("apple" in triple))
            or (self.kind == STATIC and "apple" in triple)
            or (self.kind != OBJECT and "windows" in triple)
        )
        if wrong:
            raise ArgumentError(
                f"{self.label}: {triple} has no {self.path.suffix} files; an object "
                "file, .o, is for every target"
            )

    def _link(self, library: Library, linker: str | None) -> bytes:
        """Return the content of the main file."""
        if self.kind == OBJECT:
            return library.code
        exports = [f"{library.prefix}_{name}" for name in FUNCTIONS]
        if self.kind == STATIC:
            return static_archive(f"{self.stem}.o", library.code, exports)
        with tempfile.TemporaryDirectory() as folder:
            object_file = Path(folder, f"{self.stem}.o")
            object_file.write_bytes(library.code)
            output = Path(folder, self.path.name)
            objects = [str(object_file)]
            try:
                link(LinkTask(library.triple, objects, str(output), exports), linker)
            except MissingLinkerError:
                objects = [self.sibling_path(".o").name]
                manual_link = LinkTask(library.triple, objects, self.path.name, exports)
                raise MissingLinkerError(
                    f"{self.label}: no linker for {library.triple} is installed: "
                    "`pip install ziglang` provides one. To link manually, run "
                    f"{manual_command(manual_link)}"
                ) from None
            return output.read_bytes()

    def _write_files(self, library: Library, main: Path, code: bytes) -> None:
        """Write the library and its other files together."""
        companions = [self.sibling_path(".h")]
        if not library.embeds:
            companions.append(self.sibling_path(".safetensors"))
        for path in companions:
            self._check_overwritable(path)
        weights_file = None if library.embeds else companions[-1].name
        target = self.target or "this machine"
        header_data = HeaderData(toolkit.__version__, [main.name], target, weights_file)
        text = header_text(library, header_data)
        other_libraries = self._libraries_with_header(main, companions[0], text)
        header_data = replace(header_data, files=sorted([main.name, *other_libraries]))
        owned_names = {main.name, *(path.name for path in companions)}
        files = FileSet(main.parent, main.name, owned_names.__contains__, main.name)
        with files.replace() as folder:
            (folder / main.name).write_bytes(code)
            text = header_text(library, header_data)
            (folder / companions[0].name).write_text(text, "utf-8", newline="\n")
            if weights_file is not None:
                write_weights(folder / weights_file, library)

    def _check_overwritable(self, path: Path) -> None:
        """Raise an error if a file of another program would be replaced."""
        if not path.exists():
            return
        if not path.is_file():
            is_replaceable = False
        elif path.suffix == ".h":
            is_replaceable = _read_first_line(path).startswith(MARK)
        else:
            is_replaceable = is_weights_file(path)
        if not is_replaceable:
            raise UnwritableFileError(
                f"{self.label}: {str(path)!r} exists and was not written by an "
                "export; move it, or choose another name for the library"
            )

    def _libraries_with_header(self, main: Path, header: Path, text: str) -> list[str]:
        """Return the other libraries that share the header.

        Raises:
            UnwritableFileError: they do not match the header of the new one.
        """
        if not header.exists():
            return []
        existing_text = header.read_text("utf-8", "replace")
        names = [
            name for name in libraries_of_header(existing_text) if name != main.name
        ]
        existing = [name for name in names if header.with_name(name).exists()]
        if existing and existing_text.partition("\n")[2] != text.partition("\n")[2]:
            raise UnwritableFileError(
                f"{self.label}: {str(header)!r} belongs to another library, "
                f"{existing[0]!r}, which needs this header; choose another name or "
                "folder, or remove the other library"
            )
        return existing


def _read_first_line(path: Path) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline(_MAX_LINE_LENGTH)
