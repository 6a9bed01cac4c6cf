"""What the package tells the user: on standard output, or in the log."""

from __future__ import annotations

import logging
import sys

from toolkit import config


def print_message(text: str, line_break: bool = True) -> None:
    """Print, or log where interactive logging is disabled.

    Characters that standard output cannot encode become "?".
    """
    if not config.is_interactive_logging_enabled():
        logging.getLogger("toolkit").info(text.strip("\r\n\b"))
        return
    text = f"{text}\n" if line_break else text
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()
