"""The hook of the build that converts README.md for the page of the package index.

The index shows the text without the files of the repository. With a Repository in the
`urls` of the project, links to files become links to that address. Without one, the
text of a link remains, and pictures are removed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# An optional `!` for a picture, the text, and a target that is not an address.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def convert(text: str, repository: str | None = None) -> str:
    """Return a README for readers without the repository.

    Args:
        text: Markdown with links that are relative to the root of the repository.
        repository: the address of the repository.
    """

    def replace(link: re.Match[str]) -> str:
        is_picture, label, target = link.groups()
        if repository is None:
            return "" if is_picture else label
        kind = "raw" if is_picture else "blob"
        return f"{is_picture}[{label}]({repository.rstrip('/')}/{kind}/main/{target})"

    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(replace, text))


class IndexPage(MetadataHookInterface):
    """Set `readme` of the project to the converted README.md."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field in the metadata that the build writes."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": convert(text, repository),
        }
