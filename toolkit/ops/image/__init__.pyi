# Written by scripts/write_stubs; do not edit.
from toolkit.ops.image.colors import (
    hsv_to_rgb as hsv_to_rgb,
    rgb_to_grayscale as rgb_to_grayscale,
    rgb_to_hsv as rgb_to_hsv,
)
from toolkit.ops.image.filters import (
    gaussian_blur as gaussian_blur,
    sobel_edges as sobel_edges,
    ssim as ssim,
)
from toolkit.ops.image.pieces import (
    crop_images as crop_images,
    extract_patches as extract_patches,
    extract_patches_3d as extract_patches_3d,
    pad_images as pad_images,
)
from toolkit.ops.image.resizing import (
    resize as resize,
    scale_and_translate as scale_and_translate,
)
from toolkit.ops.image.warping import (
    affine_transform as affine_transform,
    map_coordinates as map_coordinates,
    perspective_transform as perspective_transform,
)
from toolkit.random.elastic import elastic_transform as elastic_transform
