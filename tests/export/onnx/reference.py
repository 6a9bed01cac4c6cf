"""Compare exported models in `onnx.reference` with the results of toolkit."""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from toolkit import tree

SIZES = (1, 2, 13)  # batch sizes: none of them is traced
FREE = 9  # other free extents
TOLERANCE = 1e-5


def onnx_run(path):
    """Return a function of a list of arrays that runs a file."""
    evaluator = ReferenceEvaluator(str(path))

    def run(feeds):
        with np.errstate(all="ignore"):
            return evaluator.run(None, feeds)

    return run


def relative_error(actual, expected):
    """Return the largest difference relative to the largest expected number."""
    assert actual.shape == expected.shape
    if actual.dtype.kind in "biu":
        assert (actual == expected).all()
        return 0.0
    assert (np.isnan(actual) == np.isnan(expected)).all()
    if not expected.size:
        return 0.0
    scale = max(1.0, float(np.nanmax(np.abs(expected))))
    return float(np.nanmax(np.abs(actual.astype(float) - expected))) / scale


def check_export(
    model, path, sizes=SIZES, draw=None, run=onnx_run, free=FREE, **options
):
    """Export a model, and run the file with several batch sizes.

    Args:
        model: with inputs whose first extent is free.
        path: of the file.
        sizes: of batches.
        draw: returns an array for a shape and a dtype.
        run: returns a function of feeds for a path.
        free: other free extents.
        **options: of the export.

    Returns:
        The model in the file.
    """
    rng = np.random.default_rng(0)
    draw = draw or (lambda shape, dtype: sample(rng, shape, dtype))
    model.export(path, verbose=False, **options)
    proto = onnx.load(path)
    outputs_of = run(path)
    worst = 0.0
    for size in sizes:
        shapes = [[size, *(n or free for n in x.shape[1:])] for x in model.inputs]
        pairs = zip(shapes, model.inputs, strict=True)
        arrays = [draw(tuple(shape), x.dtype) for shape, x in pairs]
        names = [x.name for x in proto.graph.input]
        outputs = outputs_of(dict(zip(names, arrays, strict=True)))
        arguments = arrays if len(arrays) > 1 else arrays[0]
        results = tree.flatten(model(arguments, training=False))
        expected = [y.numpy() for y in results]
        assert len(outputs) == len(expected)
        for a, b in zip(outputs, expected, strict=True):
            worst = max(worst, relative_error(np.asarray(a), b))
    assert worst <= TOLERANCE, worst
    return proto


def sample(rng, shape, dtype):
    """Return numbers in the usual range of a layer."""
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 5, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)
