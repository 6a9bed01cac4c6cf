"""Diagrams, charts and pages, as SVG and HTML without scripts.

Most programs draw nothing, so each module is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.definitions.namespaces import lazy_namespace

if TYPE_CHECKING:
    from toolkit.pictures import curves, notebook, page, spans

__getattr__, __dir__ = lazy_namespace(
    __name__, {}, modules=("curves", "notebook", "page", "spans")
)
