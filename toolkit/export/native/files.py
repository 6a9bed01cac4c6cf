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
from toolkit.export.native.header import MARK, Naming, files_of, header_text
from toolkit.export.native.link import Linking, by_hand, link
from toolkit.export.native.names import KINDS, MODULE, OBJECT, SHARED, STATIC, stem_of
from toolkit.export.native.static_archive import static_archive
from toolkit.export.native.weights import is_ours, write_weights
from toolkit.files.sets import FileSet

_LONGEST_LINE = 4096


@record
class LibraryFiles:
    """Files of a library and their content.

    Args:
        label: the label in messages.
        path: the path from the user.
        given: the name of the processor, or None.
    """

    label: str
    path: Path
    given: str | None

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
        return "wasm32" if self.kind == MODULE and self.given is None else self.given

    @property
    def stem(self) -> str:
        """The common stem of the file names."""
        return stem_of(self.path)

    def beside(self, ending: str) -> Path:
        """Return the path of another file of the library."""
        return self.path.with_name(self.stem + ending)

    def write(self, library: Library, linker: str | None) -> None:
        """Write all files, or none; without a linker, write the object file."""
        self._check_kind(library)
        try:
            code = self._linked(library, linker)
        except MissingLinkerError as error:
            place = self.beside(".o")
            if place.exists():
                raise MissingLinkerError(
                    f"{error}; {str(place)!r} is there already: nothing was written"
                ) from None
            try:
                self._replace(library, place, library.code)
            except UnwritableFileError as other:
                raise MissingLinkerError(
                    f"{error}; nothing was written: {other}"
                ) from None
            raise MissingLinkerError(
                f"{error}; it takes {str(place)!r}, which is written"
            ) from None
        self._replace(library, self.path, code)

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

    def _linked(self, library: Library, linker: str | None) -> bytes:
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
                link(Linking(library.triple, objects, str(output), exports), linker)
            except MissingLinkerError:
                objects = [self.beside(".o").name]
                wanted = Linking(library.triple, objects, self.path.name, exports)
                raise MissingLinkerError(
                    f"{self.label}: no linker for {library.triple} is installed: "
                    "`pip install ziglang` brings one, and this links it by hand: "
                    f"{by_hand(wanted)}"
                ) from None
            return output.read_bytes()

    def _replace(self, library: Library, main: Path, code: bytes) -> None:
        """Write the library and its other files together."""
        beside = [self.beside(".h")]
        if not library.embeds:
            beside.append(self.beside(".safetensors"))
        for place in beside:
            self._check_ours(place)
        weights_file = None if library.embeds else beside[-1].name
        target = self.target or "this machine"
        naming = Naming(toolkit.__version__, [main.name], target, weights_file)
        text = header_text(library, naming)
        others = self._others(main, beside[0], text)
        naming = replace(naming, files=sorted([main.name, *others]))
        owned = {main.name, *(place.name for place in beside)}
        files = FileSet(main.parent, main.name, owned.__contains__, main.name)
        with files.replace() as folder:
            (folder / main.name).write_bytes(code)
            text = header_text(library, naming)
            (folder / beside[0].name).write_text(text, "utf-8", newline="\n")
            if weights_file is not None:
                write_weights(folder / weights_file, library)

    def _check_ours(self, place: Path) -> None:
        """Raise an error if a file of another program would be replaced."""
        if not place.exists():
            return
        if not place.is_file():
            ours = False
        elif place.suffix == ".h":
            ours = _start_of(place).startswith(MARK)
        else:
            ours = is_ours(place)
        if not ours:
            raise UnwritableFileError(
                f"{self.label}: {str(place)!r} is there, and was not written by an "
                "export; move it, or give the library another name"
            )

    def _others(self, main: Path, header: Path, text: str) -> list[str]:
        """Return the other libraries that share the header.

        Raises:
            UnwritableFileError: they do not match the header of the new one.
        """
        if not header.exists():
            return []
        older = header.read_text("utf-8", "replace")
        names = [name for name in files_of(older) if name != main.name]
        found = [name for name in names if header.with_name(name).exists()]
        if found and older.partition("\n")[2] != text.partition("\n")[2]:
            raise UnwritableFileError(
                f"{self.label}: {str(header)!r} belongs to another library, "
                f"{found[0]!r}, which would be without it; give this one another name "
                "or folder, or remove that one"
            )
        return found


def _start_of(path: Path) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline(_LONGEST_LINE)
