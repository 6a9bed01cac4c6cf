"""Samples of shapes, rearranging and creation."""

import numpy as np

from tests.ops.table import distinct, integers, sample, uniform


def creation(name, *args, **attrs):
    """Return a row of a function that creates a floatx tensor from numbers."""
    return sample(name, *args, **{"dtype": "float32", "order": 0, **attrs})


SHAPES = [
    sample("reshape", distinct((3, 4)), (2, -1)),
    sample("reshape", distinct((3, 4)), (4, 3, 1)),
    sample("reshape", distinct(()), (1, 1)),
    sample("reshape", np.zeros((0, 3)), (3, 0)),
    sample("ravel", distinct((2, 3))),
    sample("transpose", distinct((2, 3, 4))),
    sample("transpose", distinct((2, 3, 4)), (1, 2, 0)),
    sample("broadcast_to", distinct((3, 1)), (2, 3, 4)),
    sample("broadcast_to", distinct(()), (2, 0)),
    sample("expand_dims", distinct((3,)), -1),
    sample("expand_dims", distinct((3, 4)), (0, 2)),
    sample("squeeze", distinct((1, 3, 1))),
    sample("squeeze", distinct((1, 3, 1)), 0),
    sample("moveaxis", distinct((2, 3, 4)), 0, -1),
    sample("moveaxis", distinct((2, 3, 4)), (0, 1), (-1, 0)),
    sample("swapaxes", distinct((2, 3, 4)), 0, 2),
    sample("flip", distinct((2, 3))),
    sample("flip", distinct((2, 3)), 1),
    sample("fliplr", distinct((2, 3))),
    sample("flipud", distinct((2, 3))),
    sample("concatenate", [distinct((2, 3)), distinct((1, 3)), np.zeros((0, 3))]),
    sample("concatenate", [distinct((2, 3)), integers(0, 9, (2, 1))], axis=-1),
    sample("stack", [distinct((2, 3)), distinct((2, 3))], axis=1),
    sample("split", distinct((4, 3)), 2),
    sample("split", distinct((2, 5)), (1, 3), axis=1),
    sample("unstack", distinct((2, 3)), axis=1, numpy=lambda x: list(x.T)),
    sample("vstack", [distinct((3,)), distinct((2, 3))]),
    sample("hstack", [distinct((3,)), distinct((2,))]),
    sample("hstack", [distinct((2, 3)), distinct((2, 1))]),
    sample("dstack", [distinct((2, 3)), distinct((2, 3))]),
    sample("append", distinct((2, 3)), distinct((3,))),
    sample("append", distinct((2, 3)), distinct((1, 3)), axis=0),
    sample("array_split", distinct((5, 2)), 3),
    sample("hsplit", distinct((2, 4)), 2),
    sample("vsplit", distinct((4, 2)), (1,)),
    sample("dsplit", distinct((1, 2, 4)), 2),
    sample("repeat", distinct((2, 3)), 2, axis=1),
    sample("repeat", distinct((2, 3)), 2),
    sample("repeat", distinct((3, 2)), (1, 0, 2), axis=0),
    sample("tile", distinct((2, 3)), 2),
    sample("tile", distinct((3,)), (2, 1, 2)),
    sample("tile", distinct((2, 1, 3)), (2,)),
    sample("roll", distinct((2, 3)), 4),
    sample("roll", distinct((4, 3)), -1, axis=0),
    sample("roll", distinct((4, 3)), (1, 2), axis=(0, 1)),
    *[sample("rot90", distinct((2, 3, 2)), k=k) for k in range(4)],
    sample("rot90", distinct((2, 3, 2)), axes=(2, 0)),
    sample("meshgrid", distinct((2,)), distinct((3,))),
    sample("meshgrid", distinct((2,)), distinct((3,)), distinct((4,)), indexing="ij"),
    sample("diagonal", distinct((3, 4))),
    sample("diagonal", distinct((2, 3, 4)), 1, 2, 0),
    sample("diagonal", distinct((3, 4)), -2),
    sample("diagonal", distinct((3, 4)), 7),
    *[sample("diag", distinct((3,)), k=k) for k in (-2, 0, 1)],
    sample("diag", distinct((3, 4)), k=1),
    sample("diag", np.zeros((0,)), k=1),
    sample("diagflat", distinct((2, 2)), k=-1),
    sample("trace", distinct((3, 4)), 1),
    sample("trace", integers(-9, 9, (2, 3, 3)), axis1=1, axis2=2),
    *[sample("tril", distinct((2, 3, 4)), k=k) for k in (-1, 0, 1)],
    *[sample("triu", distinct((3, 4)), k=k) for k in (-1, 0, 1)],
    sample("pad", distinct((2, 3)), 1),
    sample("pad", distinct((2, 3)), ((0, 1), (2, 0)), constant_values=1.5),
    sample("pad", integers(0, 9, (3,)), (1, 2)),
    *[
        sample("pad", distinct((3, 4)), ((1, 2), (0, 3)), mode=mode)
        for mode in ("edge", "reflect", "symmetric", "wrap")
    ],
    sample("pad", distinct((2,)), (3, 4), mode="reflect"),
    sample(
        "pad",
        distinct((3,)),
        (1, 1),
        mode="circular",
        numpy=lambda x, w, mode=None: np.pad(x, w, mode="wrap"),
    ),
    sample("vander", uniform(0.5, 2, (3,)), 4),
    sample("vander", uniform(0.5, 2, (3,)), increasing=True),
    sample(
        "extract_sequences",
        distinct((2, 7)),
        3,
        2,
        numpy=lambda x, n, s: np.lib.stride_tricks.sliding_window_view(x, n, -1)[
            :, ::s
        ],
    ),
    sample("shape", distinct((2, 3)), traced=False, order=0, dtype="python"),
    sample("ndim", distinct((2, 3)), traced=False, order=0, dtype="python"),
    sample("size", distinct((2, 3)), traced=False, order=0, dtype="python"),
]

REARRANGED = [
    sample(
        "rearrange",
        distinct((2, 3, 4)),
        pattern,
        **lengths,
        numpy=lambda x, pattern, reference=reference: reference(x),
    )
    for pattern, lengths, reference in (
        ("a b c -> c a b", {}, lambda x: x.transpose(2, 0, 1)),
        ("a b c -> a (b c)", {}, lambda x: x.reshape(2, 12)),
        ("a b c -> (c a) b", {}, lambda x: x.transpose(2, 0, 1).reshape(8, 3)),
        (
            "a b (h w) -> a h b w",
            {"h": 2},
            lambda x: x.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3),
        ),
        ("a ... -> ... a", {}, lambda x: x.transpose(1, 2, 0)),
        ("a b c -> a 1 b c", {}, lambda x: x[:, None]),
    )
]
CREATION = [
    creation("zeros", (2, 3)),
    creation("ones", (2, 0)),
    creation("empty", (2,), numpy=np.zeros),
    creation("full", (2, 3), 1.5),
    creation("full", (2, 3), 4, "int32", dtype="int32"),
    sample("zeros_like", distinct((2, 3)), order=0),
    sample("ones_like", distinct((2, 3)), order=0),
    sample("empty_like", distinct((2, 3)), numpy=np.zeros_like, order=0),
    sample("full_like", distinct((2, 3)), 2.5, order=0),
    creation("arange", 5, dtype="int32"),
    creation("arange", 1.0, 2.0, 0.25),
    creation("arange", 7, 1, -2, dtype="int32"),
    creation("eye", 3),
    creation("eye", 2, 4, k=1),
    creation("identity", 3),
    creation("tri", 3, 4, k=-1),
    creation("linspace", 0.0, 1.0, num=7),
    creation("linspace", 2, 5, num=4, endpoint=False),
    sample("linspace", distinct((2,)), distinct((2,)), num=5, axis=-1, half=False),
    creation("logspace", 0.0, 2.0, num=5),
    creation("geomspace", 1.0, 16.0, num=5),
    sample(
        "geomspace", uniform(1, 2, (2,)), uniform(4, 5, (2,)), num=4, axis=1, half=False
    ),
    *[
        creation(name, n, tolerance=5)
        for name in ("bartlett", "blackman", "hamming", "hanning")
        for n in (7, 1)
    ],
    creation("kaiser", 7, 8.6, tolerance=5),
    creation("array", [1.0, 2.0], numpy=np.array),
    creation("convert_to_tensor", 1.5, numpy=np.array),
    sample("convert_to_numpy", distinct((2,)), numpy=np.array, order=0, traced=False),
    sample("convert_to_tensor", integers(0, 9), numpy=np.array),
]

SAMPLES = SHAPES + REARRANGED + CREATION
