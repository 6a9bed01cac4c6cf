"""Short texts on images, drawn as strokes of any width."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

# The glyphs from " " to "~", 5 columns of 7 dots each; the lowest bit is the top.
_DOTS = bytes.fromhex(
    "0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649552250"
    "0000070300 001c224100 0041221c00 082a1c2a08 08083e0808 0000503000 0808080808"
    "0000606000 2010080402 3e5149453e 00427f4000 4261514946 2141454b31 1814127f10"
    "2745454539 3c4a494930 0171090503 3649494936 064949291e 0000360000 0000563600"
    "0008142241 1414141414 4122140800 0201510906 324979413e 7e1111117e 7f49494936"
    "3e41414122 7f4141221c 7f49494941 7f09090101 3e41415132 7f0808087f 00417f4100"
    "2040413f01 7f08142241 7f40404040 7f0204027f 7f0408107f 3e4141413e 7f09090906"
    "3e4151215e 7f09192946 4649494931 01017f0101 3f4040403f 1f2040201f 7f2018207f"
    "6314081463 0304780403 6151494543 007f414100 0204081020 0041417f00 0402010204"
    "4040404040 0001020400 2054545478 7f48444438 3844444420 384444487f 3854545418"
    "087e090102 081454543c 7f08040478 00447d4000 2040443d00 007f102844 00417f4000"
    "7c04180478 7c08040478 3844444438 7c14141408 081414187c 7c08040408 4854545420"
    "043f444020 3c4040207c 1c2040201c 3c4030403c 4428102844 0c5050503c 4464544c44"
    "0008364100 00007f0000 0041360800 0804081008".replace(" ", "")
)
_STEPS = ((0, 1), (1, 0), (1, 1), (1, -1))


@cache
def _strokes(sign: str) -> list[tuple[int, int, int, int]]:
    """Return the lines (row, column, row step, column step) between dots of a glyph."""
    index = ord(sign) - 32
    if not 0 <= index < len(_DOTS) // 5:
        index = ord("?") - 32
    columns = _DOTS[5 * index : 5 * index + 5]
    dots = {(r, c) for c in range(5) for r in range(7) if columns[c] >> r & 1}
    lines = []
    for row, column in dots:
        for down, right in _STEPS:
            corner = {(row + down, column), (row, column + right)} & dots
            is_cut = down and right and corner  # the path around is already drawn
            if (row + down, column + right) in dots and not is_cut:
                lines.append((row, column, down, right))
        lines.append((row, column, 0, 0))
    return lines


def draw_text(
    image: Pixels, text: str, x: int, y: int, size: int, width: int, color: Any
) -> None:
    """Draw `text` on an image (height, width, channels), with its baseline at (x, y).

    Args:
        size: the distance between dots, in pixels; a letter is 6 dots high.
        width: width of the strokes, in pixels.
    """
    for index, sign in enumerate(text):
        x_start = x + index * 6 * size
        for row, column, down, right in _strokes(sign):
            for step in range(size if down or right else 1):
                top = y + (row - 6) * size + down * step
                side = x_start + column * size + right * step
                fill(image, side, top, side + width, top + width, color)


def fill(image: Pixels, x1: int, y1: int, x2: int, y2: int, color: Any) -> None:
    """Color the pixels of the image from (x1, y1) to (x2, y2), exclusive."""
    image[max(y1, 0) : max(y2, 0), max(x1, 0) : max(x2, 0)] = color
