"""Visualization of model data: boxes and masks drawn on images, image galleries.

Drawing needs only NumPy; galleries need Matplotlib.
"""

from toolkit.visualization.drawing import draw_bounding_boxes, draw_segmentation_masks
from toolkit.visualization.galleries import (
    plot_bounding_box_gallery,
    plot_image_gallery,
    plot_segmentation_mask_gallery,
)

__all__ = [
    "draw_bounding_boxes",
    "draw_segmentation_masks",
    "plot_bounding_box_gallery",
    "plot_image_gallery",
    "plot_segmentation_mask_gallery",
]
