"""Traces for the callback TensorBoard: Keras asks TensorFlow and JAX alone for them."""
