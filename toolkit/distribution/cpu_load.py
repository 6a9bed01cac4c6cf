"""Process that keeps one core busy, as another rank of a machine would."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def run_load(arguments: Sequence[str] = ()) -> None:
    """Multiply matrices until the process is killed; print a line after the first.

    Args:
        arguments: has no effect.
    """
    x = np.ones((256, 256), np.float32)
    x @ x
    print(flush=True)
    while True:
        x @ x
