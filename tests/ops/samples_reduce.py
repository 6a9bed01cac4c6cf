"""Samples of reductions, running reductions and statistics."""

import numpy as np

from tests.ops.table import booleans, distinct, integers, sample, uniform

NAN = float("nan")
_with_nan = np.array(
    [[1.0, NAN, 3.5, -2.0], [0.5, 4.0, NAN, NAN], [2.5, -1.0, 0.25, 6.0]]
)


def reduction(name, values=distinct, **options):
    """Return rows over an axis, a tuple, all axes; with keepdims; of 0-d tensors."""
    return [
        sample(name, values((3, 4)), **options),
        sample(name, values((3, 4)), axis=1, **options),
        sample(name, values((2, 3, 4)), axis=(0, -1), keepdims=True, **options),
        sample(name, values(()), **options),
    ]


def of_empty(name, **options):
    return [
        sample(name, np.zeros((0, 3)), axis=0, **options),
        sample(name, np.zeros((2, 0)), axis=0, **options),
    ]


def logsumexp(x, axis=None, keepdims=False):
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def _logs_of_zero(x):
    return np.full(x.shape[1:], -np.inf)


def _positive(shape):
    return uniform(0.5, 1.5, shape)


def _arg(name):
    return [
        sample(name, distinct()),
        sample(name, distinct(), axis=0),
        sample(name, distinct((2, 3, 4)), axis=-2, keepdims=True),
        sample(name, np.array([1.0, NAN, 3.0])),
        sample(name, np.array([2, 2, 1, 1], np.int32)),
    ]


def _histogram(*args):
    counts, edges = np.histogram(*args)
    return counts.astype(edges.dtype), edges


REDUCTIONS = [
    *reduction("sum"),
    *of_empty("sum"),
    sample("sum", integers(-9, 9), axis=0),
    sample("sum", booleans(), axis=1),
    *reduction("prod", _positive),
    *of_empty("prod"),
    sample("prod", np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0]]), axis=1),
    sample("prod", np.array([[[2.0, 3.0]], [[0.0, 0.0]]]), axis=(0, 2)),
    sample("prod", integers(-3, 3), axis=1),
    *reduction("max"),
    *reduction("min"),
    *reduction("amax"),
    *reduction("amin"),
    sample("max", np.array([1.0, NAN]), order=0),
    sample("max", integers(-9, 9), axis=0),
    sample("max", uniform(-1, 1, (2, 3)), axis=1, initial=0.5),
    sample("min", np.zeros((0, 3)), axis=0, initial=2.0),
    *reduction("mean"),
    *reduction("var"),
    *reduction("std", tolerance=5)[:3],
    sample("mean", integers(-9, 9), axis=0, dtype="float32"),
    sample("logsumexp", distinct(), numpy=logsumexp),
    sample("logsumexp", distinct(), 1, numpy=logsumexp),
    sample("logsumexp", distinct((2, 3, 4)), (0, -1), True, numpy=logsumexp),
    sample("logsumexp", distinct(()), numpy=logsumexp),
    sample("logsumexp", np.zeros((0, 2)), axis=0, numpy=_logs_of_zero, order=0),
    sample("logsumexp", np.array([1000.0, 1000.0]), numpy=lambda x: 1000 + np.log(2)),
    sample("logsumexp", np.array([-np.inf, -np.inf]), numpy=lambda x: -np.inf, order=0),
    *reduction("any", booleans),
    *reduction("all", booleans),
    *of_empty("any"),
    *of_empty("all"),
    *_arg("argmax"),
    *_arg("argmin"),
    sample("count_nonzero", integers(-1, 2), axis=1),
    sample("count_nonzero", booleans()),
    *reduction("ptp"),
]

RUNNING = [
    *[
        sample(name, values, axis=axis)
        for name in ("cumsum", "cumprod")
        for values, axis in (
            (_positive((3, 4)), 0),
            (_positive((3, 4)), -1),
            (_positive((2, 3)), None),
            (_positive((5,)), 0),
            (np.zeros((0, 3)), 0),
        )
    ],
    sample("cumsum", integers(-9, 9), axis=1),
    sample("cumprod", np.array([2.0, 0.0, 3.0, 4.0]), axis=0),
    sample("cumsum", booleans(), axis=0),
    sample("diff", distinct()),
    sample("diff", distinct(), n=2, axis=0),
    sample("diff", booleans((5,))),
    sample("diff", np.zeros((3, 0))),
    sample("trapezoid", distinct(), dx=0.5),
    sample("trapezoid", distinct(), np.array([0.0, 0.5, 2.0]), axis=0),
    sample("trapezoid", distinct(), distinct()),
]


def _nans(x):
    """Return the reduction of no elements over the first axis."""
    return np.full(x.shape[1:], NAN)


def without_nan(name, **options):
    return [
        sample(name, _with_nan, order=0, **options),
        sample(name, _with_nan, axis=1, order=0, **options),
        sample(name, distinct(), axis=0, **options),
        sample(name, integers(-9, 9), axis=0, **{"dtype": None, **options}),
    ]


WITHOUT_NAN = [
    *[row for name in ("nansum", "nanmax", "nanmin") for row in without_nan(name)],
    sample(
        "nanmax",
        np.array([[NAN, NAN], [1.0, NAN]]),
        axis=1,
        numpy=lambda x: np.array([NAN, 1.0]),
        order=0,
    ),
    *[
        sample(name, np.zeros((0, 2)), axis=0, numpy=_nans, order=0)
        for name in ("nanmax", "nanmin", "nanmedian")
    ],
    sample("nanprod", _with_nan, axis=0, order=0),
    *[
        row
        for name in ("nanmean", "nanvar", "nanstd", "nanmedian")
        for row in without_nan(name, tolerance=5)[:3]
    ],
    sample("nancumsum", _with_nan, axis=1, order=0),
    sample("nancumprod", _with_nan, axis=1, order=0),
    sample("nanargmax", _with_nan, axis=1),
    sample("nanargmin", _with_nan, axis=0),
    sample(
        "nanargmax",
        np.array([[NAN, NAN], [0.0, 1.0]]),
        axis=1,
        numpy=lambda x: np.array([-1, 1]),
    ),
    sample("nanquantile", _with_nan, 0.3, axis=1, order=0, tolerance=5),
    sample("nanpercentile", _with_nan, 40.0, axis=0, order=0, tolerance=5),
]

STATISTICS = [
    sample("average", distinct()),
    sample("average", distinct(), 1, np.array([0.1, 0.2, 0.3, 0.4])),
    sample("average", distinct(), None, uniform(0.5, 1, (3, 4))),
    *reduction("median")[:3],
    sample("median", np.zeros((0, 3)), axis=1),
    sample("median", np.float64(2.5).reshape(())),
    *[
        sample("quantile", distinct((3, 5)), 0.3, axis=1, method=method)
        for method in ("linear", "lower", "higher", "midpoint", "nearest")
    ],
    sample(
        "quantile", distinct((3, 4)), np.array([0.1, 0.45, 0.9]), axis=0, half=False
    ),
    sample(
        "quantile", distinct((2, 3, 4)), 0.6, axis=(0, 2), keepdims=True, half=False
    ),
    sample("quantile", np.array([1.0, NAN, 2.0]), 0.5, order=0),
    sample("percentile", distinct(), 35.0, half=False),
    sample("corrcoef", distinct((3, 5)), tolerance=10),
    sample("correlate", distinct((5,)), distinct((3,)), mode="valid"),
    sample("correlate", distinct((5,)), distinct((2,)), mode="same"),
    sample("correlate", distinct((3,)), distinct((4,)), mode="same"),
    sample("correlate", distinct((3,)), distinct((5,)), mode="full"),
    sample(
        "cdist",
        distinct((3, 2)),
        distinct((4, 2)),
        tolerance=5,
        numpy=lambda x, y: np.sqrt(((x[:, None] - y) ** 2).sum(-1)),
    ),
    sample("histogram", distinct((20,)), numpy=_histogram, order=0, half=False),
    sample(
        "histogram",
        distinct((20,)),
        5,
        (-1.03, 2.1),
        numpy=_histogram,
        order=0,
        half=False,
    ),
    sample(
        "histogram",
        distinct((20,)),
        np.array([-1.0, 0.0, 0.7, 2.0]),
        numpy=_histogram,
        order=0,
    ),
]

SAMPLES = REDUCTIONS + RUNNING + WITHOUT_NAN + STATISTICS
