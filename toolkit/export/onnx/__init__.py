"""ONNX export: the graph of a call, with symbolic sizes, in ONNX operators.

`sizes` infers how extents depend on free sizes, from traces at several sizes. `family`
represents these traces as one graph. `rules` translate each primitive to ONNX. `writer`
writes nodes with names and layouts. `exporter` is the entry point of `Model.export`.
"""
