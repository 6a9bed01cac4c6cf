"""Traces for the callback TensorBoard, which only TensorFlow and JAX write."""
