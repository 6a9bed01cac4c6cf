"""Check pictures: texts are inside and do not overlap."""

from itertools import combinations
from xml.etree import ElementTree

from toolkit.pictures.shapes import Rectangle, Text

NAMESPACE = "{http://www.w3.org/2000/svg}"


def extent(text):
    """Return (left, top, right, bottom) of a text."""
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor]
    left = text.x - shift * text.width
    return left, text.y - 0.75 * text.size, left + text.width, text.y + 0.1 * text.size


def check(picture):
    """Check that a picture is valid XML with texts inside and without overlaps."""
    root = ElementTree.fromstring(picture.svg())
    assert root[0].tag == f"{NAMESPACE}title" and root[0].text == picture.title
    assert not [e for e in root.iter() if e.tag in (f"{NAMESPACE}script", "image")]
    texts = [shape for shape in picture.shapes if isinstance(shape, Text)]
    for text in texts:
        left, top, right, bottom = extent(text)
        assert left >= 0 and right <= picture.width, text
        assert top >= 0 and bottom <= picture.height, text
    for one, other in combinations(texts, 2):
        assert not overlap(extent(one), extent(other)), (one, other)
    for shape in picture.shapes:
        if isinstance(shape, Rectangle):
            assert shape.x >= -0.5 and shape.x + shape.width <= picture.width + 0.5
            assert shape.y >= -0.5 and shape.y + shape.height <= picture.height + 0.5


def overlap(a, b):
    return min(a[2], b[2]) - max(a[0], b[0]) > 0.1 and (
        min(a[3], b[3]) - max(a[1], b[1]) > 0.1
    )


def texts_of(picture):
    return [shape.text for shape in picture.shapes if isinstance(shape, Text)]


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def mix(color, paper, opacity):
    """Return a colour of some opacity on paper, as "#rrggbb"."""
    pairs = [(int(color[i : i + 2], 16), int(paper[i : i + 2], 16)) for i in (1, 3, 5)]
    values = [round(a * opacity + b * (1 - opacity)) for a, b in pairs]
    return "#" + "".join(f"{value:02x}" for value in values)
