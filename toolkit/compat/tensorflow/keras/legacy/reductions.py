"""`tf.keras.losses.Reduction`: the names of reductions in Keras 2."""

__all__ = ["Reduction"]


class Reduction:
    """Reductions of the losses of samples to one number.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> mse = tf.keras.losses.MeanSquaredError(tf.keras.losses.Reduction.SUM)
        >>> float(mse([[1.0], [3.0]], [[0.0], [0.0]]))
        10.0
    """

    AUTO = "auto"  # current losses reject it, as in Keras 3
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
