"""Plain NumPy references of image operations: (height, width, channels) by default."""

import numpy as np

_rows = np.array([0.2989, 0.587, 0.114])


def kernel(method, x):
    """Return the weight of a pixel at distance x."""
    x = abs(x)
    if method == "bilinear":
        return max(1 - x, 0)
    if method == "bicubic":
        if x >= 2:
            return 0.0
        if x >= 1:
            return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
        return 1.5 * x**3 - 2.5 * x**2 + 1
    radius = int(method[-1])
    return float(np.sinc(x) * np.sinc(x / radius)) if x <= radius else 0.0


def weights(n, count, method, antialias, scale=None, shift=0.0):
    """Return (count, n): the weight of each old pixel in each new pixel."""
    scale = count / n if scale is None else scale
    width = max(1 / scale, 1) if antialias else 1
    rows = np.zeros((count, n))
    for i in range(count):
        center = (i + 0.5 - shift) / scale - 0.5
        if -0.5 <= center <= n - 0.5:
            weights_of_pixel = [kernel(method, (j - center) / width) for j in range(n)]
            rows[i] = np.array(weights_of_pixel) / np.sum(weights_of_pixel)
    return rows


def resize(x, size, method="bilinear", antialias=False):
    """Resize batches (batch, height, width, channels)."""
    for axis, count in zip((1, 2), size, strict=True):
        n = x.shape[axis]
        if method == "nearest":
            indices = np.floor((np.arange(count) + 0.5) * n / count).astype(int)
            x = np.take(x, indices, axis)
        else:
            rows = weights(n, count, method, antialias)
            x = np.moveaxis(np.tensordot(rows, x, (1, axis)), 0, axis)
    return x


def index(i, n, mode):
    """Return the pixel for an index, or None for the fill value."""
    if 0 <= i < n:
        return i
    if mode == "constant":
        return None
    pads = {"nearest": "edge", "wrap": "wrap", "mirror": "reflect"}
    border = 10 * n
    padded = np.pad(np.arange(n), border, mode=pads.get(mode, "symmetric"))
    return int(padded[i + border])


def pixel(x, position, order, mode="constant", value=0.0):
    """Return x at coordinates, one per leading axis that is sampled."""
    ndim = len(position)
    if order == 0:
        position = [np.sign(p) * np.floor(abs(p) + 0.5) for p in position]
    total = 0.0
    for corner in np.ndindex((2,) * ndim):
        low = [int(np.floor(p)) for p in position]
        fractions = [p - a for p, a in zip(position, low, strict=True)]
        weight = np.prod(
            [s if c else 1 - s for s, c in zip(fractions, corner, strict=True)]
        )
        at = [
            index(a + c, n, mode)
            for a, c, n in zip(low, corner, x.shape[:ndim], strict=True)
        ]
        total = total + weight * (value if None in at else x[tuple(at)])
    return total


def map_coordinates(x, coordinates, order, mode="constant", value=0.0):
    flat = coordinates.reshape(len(coordinates), -1).T
    values = [pixel(x, position, order, mode, value) for position in flat]
    return np.array(values).reshape(coordinates.shape[1:])


def apply_projection(x, t, order=1, mode="constant", value=0.0):
    """Transform one image by a transform of 8 numbers."""
    y = np.empty_like(x)
    for row, column in np.ndindex(x.shape[:2]):
        k = t[6] * column + t[7] * row + 1
        right = (t[0] * column + t[1] * row + t[2]) / k
        down = (t[3] * column + t[4] * row + t[5]) / k
        y[row, column] = pixel(x, (down, right), order, mode, value)
    return y


def homography(start, end):
    """Return the transform that maps each point of `end` to the point of `start`."""
    rows, targets = [], []
    for (to_x, to_y), (x, y) in zip(start, end, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -to_x * x, -to_x * y])
        rows.append([0, 0, 0, x, y, 1, -to_y * x, -to_y * y])
        targets += [to_x, to_y]
    return np.linalg.solve(np.array(rows), np.array(targets))


def to_gray(x):
    return np.sum(x * _rows, axis=-1, keepdims=True)


def bell(size, sigma):
    x = np.arange(size) - (size - 1) / 2
    y = np.exp(-0.5 * (x / sigma) ** 2)
    return y / y.sum()


def correlate(x, k, is_same=True):
    """Correlate each channel of a batch with one kernel."""
    height, width = k.shape
    if is_same:
        low_pad, right_pad = (height - 1) // 2, (width - 1) // 2
        pads = (
            (0, 0),
            (low_pad, height - 1 - low_pad),
            (right_pad, width - 1 - right_pad),
            (0, 0),
        )
        x = np.pad(x, pads)
    h, w = x.shape[1] - height + 1, x.shape[2] - width + 1
    terms = (k[i, j] * x[:, i : i + h, j : j + w] for i, j in np.ndindex(height, width))
    return sum(terms)


def sobel(x):
    vertical = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]])
    return np.stack([correlate(x, vertical), correlate(x, vertical.T)], axis=-1)


def ssim(a, b, size=11, sigma=1.5, maximum=1.0):
    k = np.outer(bell(size, sigma), bell(size, sigma))
    c1, c2 = (0.01 * maximum) ** 2, (0.03 * maximum) ** 2
    m1, m2, s1, s2, s12 = (
        correlate(t, k, is_same=False) for t in (a, b, a * a, b * b, a * b)
    )
    v1, v2, v12 = s1 - m1 * m1, s2 - m2 * m2, s12 - m1 * m2
    y = (2 * m1 * m2 + c1) * (2 * v12 + c2)
    return np.mean(y / ((m1**2 + m2**2 + c1) * (v1 + v2 + c2)), axis=(1, 2, 3))


def patches(x, size, strides, dilation=1):
    """Return windows of a batch without padding, along all inner axes."""
    counts = [
        (n - (k - 1) * dilation - 1) // s + 1
        for n, k, s in zip(x.shape[1:-1], size, strides, strict=True)
    ]
    y = np.empty((len(x), *counts, int(np.prod(size)) * x.shape[-1]))
    for position in np.ndindex(*counts):
        box = tuple(
            slice(p * s, p * s + (k - 1) * dilation + 1, dilation)
            for p, s, k in zip(position, strides, size, strict=True)
        )
        y[(slice(None), *position)] = x[(slice(None), *box)].reshape(len(x), -1)
    return y
