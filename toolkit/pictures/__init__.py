"""Diagrams, charts and pages, as SVG and HTML without scripts.

Most programs draw nothing, so each module is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.definitions.namespaces import on_first_use

if TYPE_CHECKING:
    from toolkit.pictures import curves, notebook, page, spans

__getattr__, __dir__ = on_first_use(
    __name__, {}, modules=("curves", "notebook", "page", "spans")
)
