"""`tf.keras.losses.Reduction`: the names of reductions, of older Keras."""

__all__ = ["Reduction"]


class Reduction:
    """How losses of samples become one number.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> mse = tf.keras.losses.MeanSquaredError(tf.keras.losses.Reduction.SUM)
        >>> float(mse([[1.0], [3.0]], [[0.0], [0.0]]))
        10.0
    """

    AUTO = "auto"  # which losses of today refuse, as in Keras 3
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
