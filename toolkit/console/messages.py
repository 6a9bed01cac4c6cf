"""Messages to the user, on standard output or in the log."""

from __future__ import annotations

import logging
import sys

from toolkit import settings

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def print_message(text: str, line_break: bool = True, use_stderr: bool = False) -> None:
    """Print a message, or log it if interactive logging is disabled.

    Args:
        text: the message.
        line_break: whether to end the line.
        use_stderr: whether to use standard error, separate from the output of a script.

    Characters that the encoding of standard output does not support become "?".
    """
    if not settings.is_interactive_logging_enabled():
        logging.getLogger("toolkit").info(text.strip("\r\n\b"))
        return
    output = sys.stderr if use_stderr else sys.stdout
    text = f"{text}\n" if line_break else text
    try:
        output.write(text)
    except UnicodeEncodeError:
        encoding = output.encoding or "ascii"
        output.write(text.encode(encoding, "replace").decode(encoding))
    output.flush()


def format_size(nbytes: float) -> str:
    """Format a number of bytes for users: `1.50 KB`."""
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.2f} {_UNITS[unit]}"
