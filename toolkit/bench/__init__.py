"""Benchmark suite: networks in Keras code, their timing, and performance targets.

`python -m toolkit bench` runs it. The same files run in environments of other
libraries, with Keras under the name of toolkit, so nothing is imported before its
measurement.
"""
