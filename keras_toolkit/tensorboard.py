"""Traces for TensorBoard; see `toolkit.profiler`."""
