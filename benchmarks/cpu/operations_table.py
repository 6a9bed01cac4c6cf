"""Table of the operations that operations.py measures, and the exempt ones."""

from operations_algebra import DRAWS, FOURIER, LINALG, PRODUCTS
from operations_elementwise import ELEMENTWISE
from operations_networks import NETWORKS, VISION
from operations_reductions import REDUCTIONS, SCANS, SORTS
from operations_shapes import CREATION, INDICES, SHAPES

GROUPS = {
    "elementwise": ELEMENTWISE,
    "reductions": REDUCTIONS,
    "scans and sorts": [*SCANS, *SORTS],
    "indices and segments": INDICES,
    "shapes": SHAPES,
    "creation": CREATION,
    "products": PRODUCTS,
    "linear algebra": LINALG,
    "Fourier transforms": FOURIER,
    "networks": NETWORKS,
    "images": VISION,
    "random numbers": DRAWS,
}

# Public functions of toolkit.ops that are not in the table, by reason.
EXEMPTIONS = {
    "no peer has this function": (
        "betainc dawsn dct divide_no_nan erfcinv expint fresnel_cos fresnel_sin idct "
        "logm multi_hot saturate_cast sparse_plus sparse_sigmoid sparsemax spence "
        "sqrtm ctc_decode image.elastic_transform image.extract_patches_3d "
        "image.hsv_to_rgb image.rgb_to_hsv image.map_coordinates image.sobel_edges "
        "image.perspective_transform image.scale_and_translate image.ssim "
        "extract_sequences"
    ),
    "returns a view or a rearrangement that other rows measure": (
        "expand_dims ravel rearrange reshape squeeze view view_as_complex "
        "view_as_real image.crop_images image.pad_images"
    ),
    "reads facts or converts, without arithmetic": (
        "array convert_to_numpy convert_to_tensor dtype empty empty_like identity "
        "is_tensor ndim shape size stop_gradient"
    ),
    "calls the functions of its caller": (
        "cond custom_gradient fori_loop jvp map scan switch vectorize vectorized_map "
        "while_loop"
    ),
    "is a composition of rows": "geomspace polar istft",
}
