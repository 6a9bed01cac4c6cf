"""The import of all stages at the construction of the first data set.

The stages subclass `Dataset`, so the module of `Dataset` cannot import them. The
package sets a function that imports them, and `Dataset` calls it.
"""

from __future__ import annotations

from collections.abc import Callable

_importer: Callable[[], object] | None = None


def set_importer(importer: Callable[[], object]) -> None:
    """Set the function that imports the modules of all stages."""
    global _importer
    _importer = importer


def import_stages() -> None:
    """Import the modules of all stages, which add their methods to `Dataset`."""
    assert _importer is not None
    _importer()
