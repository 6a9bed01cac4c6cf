"""Names of `tf.keras.preprocessing` from Keras 2 that Keras 3 does not have."""
