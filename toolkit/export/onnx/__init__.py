"""Models as ONNX files: the graph of a call, with sizes left free, in ONNX's operators.

`sizes` finds how extents depend on free sizes from traces at several of them; `family`
holds these traces as one graph; `rows` say what each primitive is in ONNX; `writer`
writes nodes with names and layouts; `exporter` is what `Model.export` calls.
"""
