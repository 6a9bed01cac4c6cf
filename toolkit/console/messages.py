"""What the package tells the user: on standard output, or in the log."""

from __future__ import annotations

import logging
import sys

from toolkit import settings

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def print_message(text: str, line_break: bool = True, errors: bool = False) -> None:
    """Print, or log where interactive logging is disabled.

    Args:
        text: the message.
        line_break: whether a line ends after it.
        errors: whether it goes to standard error, apart from what a script prints.

    Characters that standard output cannot encode become "?".
    """
    if not settings.is_interactive_logging_enabled():
        logging.getLogger("toolkit").info(text.strip("\r\n\b"))
        return
    output = sys.stderr if errors else sys.stdout
    text = f"{text}\n" if line_break else text
    try:
        output.write(text)
    except UnicodeEncodeError:
        encoding = output.encoding or "ascii"
        output.write(text.encode(encoding, "replace").decode(encoding))
    output.flush()


def size_text(nbytes: float) -> str:
    """A number of bytes as people read it: `1.50 KB`."""
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.2f} {_UNITS[unit]}"
