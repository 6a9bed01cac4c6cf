"""The script that a child process runs: see `toolkit.processes.python`.

It runs before the package can be imported, so it uses the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


class FileFinder:
    """Module finder that uses a table.

    Args:
        files: the file of each module, by the name of the module.
    """

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a module in the table.

        Args:
            name: the name of the module.
            path: has no effect.
            target: has no effect.
        """
        file = self._files.get(name)
        if file is None:
            return None
        is_package = os.path.basename(file).startswith("__init__.")
        folders = [os.path.dirname(file)] if is_package else None
        return spec_from_file_location(name, file, submodule_search_locations=folders)


def _is_of_standard_library(folder: str) -> bool:
    """Return whether a folder has modules of Python itself."""
    library = os.path.dirname(os.__file__)
    folders = (library, os.path.join(library, "lib-dynload"))
    return folder in folders or folder.endswith((".zip", f"{os.sep}DLLs"))


def main() -> None:
    """Import the function that the command names, and call it."""
    context = json.loads(sys.argv[1])
    sys.argv[:] = [context["function"], *sys.argv[2:]]
    library_folders = [folder for folder in sys.path if _is_of_standard_library(folder)]
    module_folders = [
        folder for folder in context["path"] if folder not in library_folders
    ]
    sys.path[:] = [*library_folders, *module_folders]
    sys.meta_path.insert(0, FileFinder(context["modules"]))
    import_module("toolkit.processes.python").set_context(context)
    module, _, function = context["function"].partition(":")
    sys.exit(getattr(import_module(module), function)(sys.argv[1:]))


if __name__ == "__main__":
    main()
