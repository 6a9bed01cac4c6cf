"""What `tf.keras.preprocessing` has besides `keras.preprocessing`, of older Keras."""
