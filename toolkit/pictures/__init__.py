"""Pictures drawn here: diagrams, charts and pages, as SVG and HTML without scripts.

Most programs draw nothing: each module is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.pictures import curves, notebook, page, spans

_MODULES = ("curves", "notebook", "page", "spans")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
