"""Test boxes, names and masks on images."""

import numpy as np
import pytest

from toolkit import visualization
from toolkit.visualization.text import draw_text

BOXES = {"boxes": [[[2, 3, 7, 8]]], "labels": [[4]]}


def draw(images=None, boxes=BOXES, form="xyxy", **options):
    images = np.zeros((1, 12, 10, 3)) if images is None else images
    options = {"color": (1, 2, 3), **options}
    return visualization.draw_bounding_boxes(images, boxes, form, **options)


@pytest.mark.parametrize("thickness, count", [(1, 20), (2, 40), (3, 60), (-1, 36)])
def test_thickness(thickness, count):
    image = draw(line_thickness=thickness)
    assert image.dtype == np.uint8
    assert (image[..., 2] == 3).sum() == count


@pytest.mark.parametrize(
    "form, box",
    [
        ("xywh", [2, 3, 5, 5]),
        ("yxyx", [3, 2, 8, 7]),
        ("rel_xyxy", [0.2, 0.25, 0.7, 8 / 12]),
        ("center_xywh", [4.5, 5.5, 5, 5]),
    ],
)
def test_formats(form, box):
    boxes = {"boxes": [[box]], "labels": [[4]]}
    np.testing.assert_array_equal(draw(boxes=boxes, form=form), draw())


def test_boxes_are_clipped_and_padding_is_omitted():
    boxes = {"boxes": [[[-4, -4, 50, 5], [2, 2, 4, 4]]], "labels": [[0, -1]]}
    image = draw(boxes=boxes, line_thickness=1)[0, :, :, 0]
    assert image.sum() == 10 and image[5].all()


def test_channels_first():
    images = np.zeros((1, 3, 12, 10))
    image = draw(images, data_format="channels_first")
    np.testing.assert_array_equal(image, np.moveaxis(draw(), -1, 1))


@pytest.mark.parametrize("image, expected", [(0.5, 127), (200.7, 200), (300, 255)])
def test_values_become_bytes(image, expected):
    images = np.full((1, 12, 10, 3), image)
    assert draw(images)[0, 0, 0, 0] == expected


def test_names_are_written():
    size = (1, 60, 120, 3)
    boxes = {"boxes": [[[4, 40, 50, 55]]], "labels": [[4]], "confidences": [[0.5]]}
    plain, named, other = (
        draw(np.zeros(size), boxes, class_mapping=names)
        for names in (None, {4: "cat"}, {3: "dog"})
    )
    np.testing.assert_array_equal(plain, other)
    extra = (named != plain)[0].any(-1)
    rows, columns = np.nonzero(extra)
    assert rows.max() < 40 and columns.max() > 100  # above the box; "cat | 0.50"


def test_names_of_boxes_at_the_top_are_inside():
    boxes = {"boxes": [[[4, 1, 80, 55]]], "labels": [[4]]}
    size = (1, 60, 120, 3)
    named = draw(np.zeros(size), boxes, class_mapping={4: "cat"})
    assert (named != draw(np.zeros(size), boxes))[0, 5:30].any()


def test_letters():
    image = np.zeros((7, 17, 1), "uint8")
    draw_text(image, "Hi~", 0, 6, 1, 1, 1)
    lines = ["".join(" #"[dot] for dot in row) for row in image[..., 0]]
    assert lines == [
        "#   #   #        ",
        "#   #            ",
        "#   #  ##    #   ",
        "#####   #   # # #",
        "#   #   #      # ",
        "#   #   #        ",
        "#   #  ###       ",
    ]
    wide = np.zeros((14, 34, 1), "uint8")
    draw_text(wide, "Hi~", 0, 12, 2, 2, 1)
    assert wide[::2, ::2, 0][image[..., 0] == 1].all()


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "4D", {"images": np.zeros((12, 10, 3))}),
        (TypeError, "should be a dict", {"boxes": [1]}),
        (ValueError, "'boxes' and 'labels'", {"boxes": {"boxes": [1]}}),
        (ValueError, "data_format", {"data_format": "first"}),
    ],
)
def test_refused_boxes(error, match, change):
    with pytest.raises(error, match=match):
        draw(**change)


# --- masks ----------------------------------------------------------------------------

IMAGES = np.full((1, 2, 2, 3), 100)
MASKS = np.array([[[0, 1], [2, 3]]])


def mask(images=IMAGES, masks=MASKS, **options):
    return visualization.draw_segmentation_masks(images, masks, **options)


def test_masks_have_colours_of_a_palette():
    image = mask(blend=False)
    palette = np.array([2**25 - 1, 2**15 - 1, 2**21 - 1])
    expected = np.array([[100] * 3, *(i * palette % 255 for i in (1, 2, 3))])
    np.testing.assert_array_equal(image.reshape(4, 3), expected)
    image_of_two = mask(blend=False, num_classes=2)
    assert image_of_two[0, 1, 1].tolist() == [100] * 3


def test_masks_blend():
    image = mask(color_mapping={1: (0, 0, 200), 2: (200, 0, 0)}, ignore_index=2)
    assert image[0, 0, 1].tolist() == [20, 20, 180]
    assert image[0, 1, 0].tolist() == [100] * 3


def test_masks_in_other_layouts():
    first = np.moveaxis(IMAGES, -1, 1)
    expected = np.moveaxis(mask(), -1, 1)
    for masks in (MASKS, MASKS[:, None]):
        image = mask(first, masks, data_format="channels_first")
        np.testing.assert_array_equal(image, expected)
    np.testing.assert_array_equal(mask(masks=MASKS[..., None]), mask())


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "4D", {"images": np.zeros((2, 2, 3))}),
        (TypeError, "must be integers", {"masks": MASKS * 1.0}),
        (ValueError, "like the images", {"masks": MASKS[:, :1]}),
        (ValueError, "alpha", {"alpha": 2}),
    ],
)
def test_refused_masks(error, match, change):
    with pytest.raises(error, match=match):
        mask(**change)
