"""Attacks by ONNX files on other files, memory, time or the reader."""

import base64
import json
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.faults.attack_list import SECRET, attack
from tests.faults.attacks_on_zips import members_of, zipped
from tests.faults.formats import read_onnx, save_onnx
from toolkit import ops, saving

# The first product loads the library for products.
ops.matmul(np.ones((64, 64)), np.ones((64, 64)))

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
HUGE = 1 << 40


def node(op, inputs=("x",), outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def model(nodes, arrays=(), x=(2, 3), dtype=FLOAT, opset=17, **options):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", dtype, x)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        list(arrays),
    )
    opsets = options.pop("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **options)


def write(folder, data):
    path = folder / "model.onnx"
    data = data if isinstance(data, bytes) else data.SerializeToString()
    path.write_bytes(data)
    return lambda: read_onnx(path)


def bad(name, make, **options):
    """Register an attack by a function that returns a model, or the bytes of a file."""
    attack(f"onnx: {name}", lambda folder: write(folder, make()), **options)


# --- bytes ----------------------------------------------------------------------------


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def message(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def deep(levels):
    """Return a model with a graph in an attribute of a node, and so on."""
    data = b""
    for _ in range(levels):
        data = message(1, message(4, b"If") + message(5, message(6, data)))
    return b"\x08\x08" + message(7, data)


def with_name(name):
    """Return a model with a node of this name, which may be invalid text."""
    onnx_model = model([node("Relu", name="N" * len(name)), node("Oh", ["y"], ["z"])])
    return onnx_model.SerializeToString().replace(b"N" * len(name), name)


bad("nothing", lambda: b"")
bad("text", lambda: b"import os; os.system('touch ran')")
bad("a pickle", lambda: b"cos\nsystem\n(S'touch ran'\ntR.")
bad("a number without end", lambda: b"\xff" * 99)
bad("a field longer than the file", lambda: b"\x3a\xff\xff\xff\xff\x0f")
bad("a field longer than memory", lambda: b"\x3a" + b"\xff" * 9 + b"\x01")
bad("groups", lambda: b"\x3b" * 5000 + b"\x3c" * 5000)
bad("millions of empty nodes", lambda: message(7, b"\x0a\0" * 2_000_000))
bad("millions of empty tensors", lambda: message(7, b"\x2a\0" * 2_000_000))
bad("millions of entries", lambda: b"\x72\0" * 3_000_000)
bad("millions of opsets", lambda: b"\x42\0" * 900_000)
bad("messages without end", lambda: deep(60))
bad("messages with nearly no end", lambda: deep(20))
bad("two graphs", lambda: model([node("Relu")]).SerializeToString() * 2)
bad("a name of a megabyte", lambda: model([node("Relu", name="n" * (1 << 20))]))
bad("a name that is no text", lambda: with_name(b"\xff\xfe\xfd"))
bad("a name that clears the screen", lambda: with_name(b"\x1b[2J\x1b]0;x\x07"))
bad("a name that is a path", lambda: with_name(b"../../../../etc/passwd"))


# --- external files -------------------------------------------------------------------


def external(folder, shape=(16,), **entries):
    """Return a model whose array is in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    nodes = [node("Cast", ["w"], ["c"], to=FLOAT), node("Identity", ["c"])]
    return write(folder, model(nodes, [tensor]))


def located(name, location, prepare=None, **entries):
    def make(folder):
        if prepare is not None:
            prepare(folder / "data")
        return external(folder, location=location, **entries)

    attack(f"onnx: data {name}", make)


def link(path):
    path.symlink_to(path.parent / "secret.txt")


def hard_link(path):
    os.link(path.parent / "secret.txt", path)


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(HUGE)


def full(path):
    path.write_bytes(bytes(16))


located("in the folder above", "../secret.txt")
located("in this folder, named by way of another", "../case/secret.txt")
located("in a folder inside", "inner/secret.txt")
located("at an absolute path", "/etc/passwd")
located("by a link", "data", link)
located("by a hard link", "data", hard_link)
located("of a device", "data", lambda path: path.symlink_to("/dev/zero"))
located("of a pipe", "data", os.mkfifo)
located("of a folder", "data", os.mkdir)
located("of Windows", "..\\secret.txt")
located("of a stream of Windows", "secret.txt:stream")
located("with an end in its name", "secret.txt\0.bin")
located("of no name", "")
located("of a name of dots", "..")
located("of the model itself, too long", "model.onnx", length=1 << 30)
located("behind the end", "data", full, offset=HUGE)
located("before the beginning", "data", full, offset=-8)
located("of another length", "data", full, length=15)
located("of a length that is a word", "data", full, length="__import__('os')")
located("of a length of many digits", "data", full, length="9" * 4000)
located(
    "that sets an attribute", "data", full, basepath="/etc", __class__="x", length=1
)
attack(
    "onnx: data of a file that is all holes",
    lambda folder: (
        sparse(folder / "data"),
        external(folder, (HUGE,), location="data"),
    )[1],
)


def in_attribute(folder):
    tensor = TensorProto(data_type=TensorProto.UINT8, dims=[len(SECRET)])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../case/secret.txt")
    return write(folder, model([node("Constant", (), ["y"], value=tensor)]))


attack("onnx: data of an attribute", in_attribute)


# --- memory ---------------------------------------------------------------------------


def grown(name, op, arrays, shape=(2, 3), opset=17, **attributes):
    """Return a model with a node whose result is too large."""
    constants = [constant(f"c{i}", value) for i, value in enumerate(arrays)]
    inputs = ["x", *(tensor.name for tensor in constants)]
    nodes = [node(op, inputs, **attributes)]
    bad(f"memory by {name}", lambda: model(nodes, constants, shape, opset=opset))


def add_constant_attack(name, op, arrays, **attributes):
    """Return the same model with a node that reads only constants."""
    constants = [constant(f"c{i}", value) for i, value in enumerate(arrays)]
    nodes = [node(op, [tensor.name for tensor in constants], ["a"], **attributes)]
    nodes.append(node("Cast", ["a"], ["y"], to=FLOAT))
    bad(f"memory by {name}", lambda: model(nodes, constants))


IMAGES = (1, 2, 8, 8)
KERNEL = np.ones((2, 2, 3, 3), "float32")
add_constant_attack("ConstantOfShape", "ConstantOfShape", [[HUGE, 4]])
add_constant_attack(
    "ConstantOfShape of a few GB", "ConstantOfShape", [[1 << 15, 1 << 15]]
)
add_constant_attack("Range", "Range", [0, HUGE, 1])
add_constant_attack(
    "Range of small steps", "Range", [np.float32(0), np.float32(1), np.float32(1e-12)]
)
add_constant_attack("OneHot", "OneHot", [[1, 2], HUGE, np.float32([0, 1])])
add_constant_attack(
    "a sum of nothing", "ReduceSum", [np.ones((0, HUGE), "float32"), [0]], keepdims=0
)
grown("Expand", "Expand", [[HUGE, 2, 3]])
grown("Tile", "Tile", [[HUGE, HUGE]])
grown("Pad", "Pad", [[0, HUGE, 0, HUGE]])
grown("Pad at the edge", "Pad", [[0, HUGE, 0, 1]], mode="edge")
grown("Pad by wrapping", "Pad", [[0, HUGE, 0, 1]], mode="wrap", opset=19)
grown("Resize", "Resize", [np.float32([]), np.float32([1, 1, 1e6, 1e6])], IMAGES)
grown("Resize to a size", "Resize", [np.float32([])] * 2 + [[1, 2, HUGE, 8]], IMAGES)
grown("Upsample", "Upsample", [np.float32([1, 1, 1e7, 1e7])], IMAGES, opset=9)
grown("pads of Conv", "Conv", [KERNEL], IMAGES, pads=[1 << 28] * 4)
grown("pads without an end", "Conv", [KERNEL], IMAGES, pads=[HUGE] * 4)
grown("ConvTranspose", "ConvTranspose", [KERNEL], IMAGES, strides=[1 << 20] * 2)
grown(
    *("output_shape", "ConvTranspose", [KERNEL], IMAGES),
    output_shape=[1 << 20, 1 << 20],
)
grown("MaxPool", "MaxPool", [], IMAGES, kernel_shape=[9, 9], pads=[1 << 28] * 4)
grown("LpPool", "LpPool", [], IMAGES, kernel_shape=[2, 2], pads=[1 << 28] * 4)
grown(
    *("dilations", "MaxPool", [], IMAGES),
    kernel_shape=[2, 2],
    dilations=[1 << 28] * 2,
    pads=[1 << 28] * 4,
)
grown("LRN", "LRN", [], IMAGES, size=1 << 40)
grown("a product", "MatMul", [np.ones((1, 1 << 16), "float32")], (1 << 16, 1))
grown("a sum", "Add", [np.ones((1, 1 << 16), "float32")], (1 << 16, 1))
grown("Einsum", "Einsum", [np.ones(1 << 14, "f4")] * 3, (9,), equation="a,b,c,d->abcd")
grown(
    "Einsum in between", "Einsum", [np.ones(1 << 14, "f4")] * 3, equation="ij,b,c,d->"
)
grown("Gather", "Gather", [np.zeros((1 << 10, 1 << 10), "int64")], (2, 1 << 20))
grown("DFT", "DFT", [HUGE], (2, 8, 1), axis=1)
grown("DFT of one side", "DFT", [HUGE], (2, 8, 2), axis=1, inverse=1, onesided=1)
grown("STFT", "STFT", [1, np.ones(1 << 14, "float32")], (8, 1 << 15, 1))
grown("CenterCropPad", "CenterCropPad", [[HUGE, HUGE]], opset=18)
grown("Col2Im", "Col2Im", [[HUGE, HUGE], [1, 1]], (1, 2, 9), opset=18)
grown(
    "MaxUnpool", "MaxUnpool", [np.zeros(IMAGES, int)], IMAGES, kernel_shape=[HUGE] * 2
)
grown(
    "GridSample", "GridSample", [np.zeros((1, 1 << 16, 1, 2), "f4")], (1, 1 << 16, 2, 2)
)
for size in ({"output_height": HUGE}, {"sampling_ratio": 1 << 20, "output_height": 99}):
    grown(
        f"RoiAlign of {next(iter(size))}",
        "RoiAlign",
        [np.float32([[0, 0, 1, 1]]), [0]],
        IMAGES,
        **size,
    )
add_constant_attack("HannWindow", "HannWindow", [HUGE])
add_constant_attack("MelWeightMatrix", "MelWeightMatrix", [HUGE, HUGE, 9, 0.0, 4.0])
grown("its inputs", "Trilu", [], (1 << 23, 1 << 23))
grown("its only input", "Relu", [], (1 << 46,))


def doubled():
    names = ["x", *(f"v{i}" for i in range(40)), "y"]
    steps = zip(names, names[1:], strict=False)
    return model([node("Concat", [a, a], [b], axis=0) for a, b in steps])


def doubled_constants():
    names = ["c", *(f"v{i}" for i in range(40)), "y"]
    steps = zip(names, names[1:], strict=False)
    nodes = [node("Concat", [a, a], [b], axis=0) for a, b in steps]
    return model(nodes, [constant("c", np.ones(9, "float32"))])


def many_held():
    """Return a model with small values that are all needed at the end."""
    names = [f"v{i}" for i in range(100)]
    nodes = [node("Expand", ["x", "shape"], [name]) for name in names]
    nodes += [node("ReduceSum", [n], [f"s{n}"], keepdims=0) for n in names]
    nodes.append(node("Sum", [f"s{n}" for n in names], ["y"]))
    return model(nodes, [constant("shape", [1 << 20, 2, 3])])


def declared(dims, **fields):
    tensor = TensorProto(name="w", data_type=FLOAT, dims=dims, **fields)
    return model([node("Identity", ["w"])], [tensor])


bad("memory by Concat", doubled)
bad("memory by Concat of constants", doubled_constants)
bad("memory by many values", many_held)
bad("a tensor without data", lambda: declared([HUGE]))
bad("a tensor of an overflow", lambda: declared([1 << 32, 1 << 32], raw_data=b""))
bad("a tensor of a negative extent", lambda: declared([-4], raw_data=bytes(16)))
bad("a tensor of too little data", lambda: declared([8], raw_data=bytes(16)))
bad("a tensor of half a number", lambda: declared([4], raw_data=bytes(15)))
bad("a tensor of many axes", lambda: declared([1] * 5000, raw_data=bytes(4)))
bad("a tensor in two places", lambda: declared([1], raw_data=bytes(4), float_data=[1]))
bad("a tensor of another dtype", lambda: declared([1], int64_data=[1]))


# --- time and depth -------------------------------------------------------------------


def nested(levels):
    """Return branches in branches."""
    inner = helper.make_graph([node("Identity", ["x"], ["y0"])], "g", [], [info("y0")])
    for i in range(levels):
        nodes = [node("If", ["b"], [f"z{i}"], then_branch=inner, else_branch=inner)]
        inner = helper.make_graph(nodes, "g", [], [info(f"z{i}")])
        if inner.ByteSize() > 1 << 20:
            break
    nodes = [node("Cast", ["x"], ["b"], to=TensorProto.BOOL), *inner.node]
    return model([*nodes, node("Identity", [inner.output[0].name], ["y"])], x=())


def info(name, dtype=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def functions(depth, calls, recursive=False):
    """Return functions that each call the next one several times."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    bodies = []
    for i in range(depth):
        following = f"f{i + 1}" if i + 1 < depth else "f0"
        names = ["a", *(f"v{k}" for k in range(calls - 1)), "b"]
        ends_here = i + 1 == depth and not recursive
        nodes = [
            node("Relu", [p], [q])
            if ends_here
            else (helper.make_node(following, [p], [q], domain="own"))
            for p, q in zip(names, names[1:], strict=False)
        ]
        bodies.append(helper.make_function("own", f"f{i}", ["a"], ["b"], nodes, opset))
    call = helper.make_node("f0", ["x"], ["y"], domain="own")
    return model([call], functions=bodies, opset_imports=opset)


def loop(count, inner=None, stacks=False):
    """Return a loop of `count` steps around another loop."""
    nodes = [node("Relu", ["v"], ["w"])] if inner is None else inner
    outputs = [info("on", TensorProto.BOOL, []), info("w")]
    nodes = [*nodes, node("Identity", ["go"], ["on"])]
    if stacks:
        nodes.append(node("Identity", ["v"], ["s"]))
        outputs.append(info("s"))
    inputs_of_body = [info("i", INT, []), info("go", TensorProto.BOOL, []), info("v")]
    body = helper.make_graph(nodes, "body", inputs_of_body, outputs)
    results = ["y", "rows"] if stacks else ["y"]
    arrays = [constant("count", np.int64(count)), constant("true", np.array(True))]
    return model([node("Loop", ["count", "true", "x"], results, body=body)], arrays)


def collecting(count=None):
    """Return a loop without nodes that collects in a sequence, or never ends."""
    kind = helper.make_tensor_type_proto(FLOAT, None)
    kind = helper.make_sequence_type_proto(kind)
    inputs_of_body = [info("i", INT, []), info("go", TensorProto.BOOL, [])]
    inputs_of_body.append(helper.make_value_info("s", kind))
    body = helper.make_graph([], "body", inputs_of_body, inputs_of_body[1:])
    arrays = [] if count is None else [constant("count", np.int64(count))]
    inputs = ["" if count is None else "count", "", "none"]
    return model(
        [
            node("SequenceEmpty", [], ["none"]),
            node("Loop", inputs, ["all"], body=body),
            node("SequenceLength", ["all"]),
        ],
        arrays,
    )


def loops(depth, count):
    """Return loops in loops."""
    nodes = [node("Relu", [f"v{depth}"], [f"w{depth}"])]
    for i in range(depth, 0, -1):
        outputs = [info(f"o{i}", TensorProto.BOOL, []), info(f"w{i}")]
        inputs_of_body = [info(f"i{i}", INT, []), info(f"g{i}", TensorProto.BOOL, [])]
        inputs_of_body.append(info(f"v{i}"))
        inner = [*nodes, node("Identity", [f"g{i}"], [f"o{i}"])]
        body = helper.make_graph(inner, "body", inputs_of_body, outputs)
        source, result = (f"v{i - 1}", f"w{i - 1}") if i > 1 else ("x", "y")
        nodes = [node("Loop", ["count", "true", source], [result], body=body)]
    arrays = [constant("count", np.int64(count)), constant("true", np.array(True))]
    return model(nodes, arrays)


def chain(count):
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    return model(
        [node("Relu", [a], [b]) for a, b in zip(names, names[1:], strict=False)]
    )


OWN = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def graphs_of_functions(depth, uses):
    """Return functions that use a graph of their caller several times, nested."""

    def branches(name):
        nodes_of_branch = []
        for i in range(uses):
            nodes_of_branch.append(node("If", ["c"], [f"{name}{i}"]))
            for branch in ("then_branch", "else_branch"):
                nodes_of_branch[-1].attribute.add(
                    name=branch, type=onnx.AttributeProto.GRAPH, ref_attr_name="g"
                )
        return nodes_of_branch

    def graph(nodes, result):
        return helper.make_graph(nodes, "inner", [], [info(result)])

    bodies = []
    for k in range(depth):
        name = f"v{k}_"
        nodes = [*branches(name), node("Add", [f"{name}0", "x"])]
        if k:
            inner = graph(branches(name), f"{name}0")
            nodes = [node(f"f{k - 1}", ["x", "c"], domain="own", g=inner)]
        signature = ["x", "c"], ["y"], nodes, OWN
        bodies.append(
            helper.make_function("own", f"f{k}", *signature, attributes=["g"])
        )
    last = graph([node("Identity", ["x"], ["z"])], "z")
    nodes = [node("Cast", ["x"], ["c"], to=TensorProto.BOOL)]
    nodes.append(node(f"f{depth - 1}", ["x", "c"], domain="own", g=last))
    return model(nodes, x=(), functions=bodies, opset_imports=OWN)


def array_of_function(size, calls, in_branch=False):
    """Return a function with an array or a list of numbers, called many times."""
    numbers = helper.make_tensor("k", FLOAT, [size], np.ones(size, "float32"))
    nodes = [node("Constant", [], ["k"], value=numbers)]
    if in_branch:
        inner = helper.make_graph([*nodes], "inner", [], [info("k")])
        nodes = [node("If", ["c"], ["k"], then_branch=inner, else_branch=inner)]
        nodes.insert(
            0, node("Constant", [], ["c"], value=constant("c", np.array(True)))
        )
    nodes += [node("ReduceSum", ["k"], ["s"], keepdims=0), node("Add", ["x", "s"])]
    function = helper.make_function("own", "f", ["x"], ["y"], nodes, OWN)
    names = ["x", *(f"v{i}" for i in range(calls - 1)), "y"]
    steps = zip(names, names[1:], strict=False)
    found = [node("f", [a], [b], domain="own") for a, b in steps]
    return model(found, functions=[function], opset_imports=OWN)


def folded(op, shapes, count=40, **attributes):
    """Return nodes that read small arrays and take long."""
    nodes = []
    for i, shape in enumerate(shapes):
        extents = constant("", np.array(shape))
        nodes.append(node("Constant", [], [f"n{i}"], value=extents))
        nodes.append(node("ConstantOfShape", [f"n{i}"], [f"c{i}"]))
    inputs = [f"c{i}" for i in range(len(shapes))]
    for k in range(count):
        nodes.append(node(op, inputs, [f"v{k}"], **attributes))
        nodes.append(node("ReduceSum", [f"v{k}"], [f"s{k}"], keepdims=0))
    nodes.append(node("Sum", ["x", *(f"s{k}" for k in range(count))]))
    return model(nodes)


def slow(name, op, shapes, **attributes):
    """Register an attack that may be read: reading does not compute the slow nodes."""

    def make(folder):
        write(folder, folded(op, shapes, **attributes))
        return lambda: saving.load_onnx(folder / "model.onnx")

    attack(f"onnx: time by {name} of constants", make, harmless=True)


SIDE = (1, 1, 181, 181)
slow("Conv", "Conv", [SIDE, SIDE], pads=[90] * 4)
slow("ConvTranspose", "ConvTranspose", [SIDE, SIDE], pads=[90] * 4)
slow("Einsum", "Einsum", [(1 << 15,)] * 2, equation="i,j->")
slow("Einsum of a sum", "Einsum", [(1 << 15,)] * 2, equation="i,j->i")
slow("MatMul", "MatMul", [(181, 181), (181, 181)], count=100)
slow("Gemm", "Gemm", [(181, 181), (181, 181)], count=100)
slow("AveragePool", "AveragePool", [SIDE], kernel_shape=[181, 181], pads=[90] * 4)
slow("MaxPool", "MaxPool", [SIDE], kernel_shape=[181, 181], pads=[90] * 4)
slow("LRN", "LRN", [(1, 9, 60, 60)], size=999, count=9)
slow(
    *("RNN", "RNN", [(1 << 14, 1, 1), (1, 1, 1), (1, 1, 1)]),
    hidden_size=1,
)
bad("graphs of functions in graphs", lambda: graphs_of_functions(7, 9))
bad("an array of a function", lambda: array_of_function(1 << 18, 2_000), harmless=True)
bad("a small one", lambda: array_of_function(1_000, 9_000))
bad("an array of a branch", lambda: array_of_function(1 << 16, 1_000, True))
bad("branches in branches", lambda: nested(40))
bad("functions of functions", lambda: functions(8, 8))
bad("deep functions", lambda: functions(12, 1))
bad("a function that calls itself", lambda: functions(1, 2, recursive=True))
bad("functions in a ring", lambda: functions(4, 1, recursive=True))
bad("a loop of many steps", lambda: loop(10**12))
bad("a loop that stacks many rows", lambda: loop(10**6, stacks=True))
bad("a loop that collects without an end", collecting)
bad("a loop that collects in many steps", lambda: collecting(10**12))
bad(
    "parts of a long axis",
    lambda: model(
        [node("SplitToSequence", outputs=["s"]), node("SequenceLength", ["s"])],
        x=(1 << 20, 1),
    ),
)
bad(
    "points between corners of many axes",
    lambda: model(
        [node("GridSample", ["x", "g"])],
        [constant("g", np.zeros((1, *[1] * 13, 13), "float32"))],
        (1, 1, *[1] * 13),
        opset=20,
    ),
)
attack(
    "onnx: time by a scale of almost nothing",
    lambda folder: write(
        folder,
        model(
            [node("Resize", ["x", "", "s"], mode="linear", antialias=1)],
            [constant("s", np.float32([1, 1e-30]))],
            opset=18,
        ),
    ),
    harmless=True,
)
bad("loops in loops", lambda: loops(8, 16))
bad("long loops in loops", lambda: loops(4, 1000))
bad("very many nodes", lambda: chain(110_000))


# --- graphs ---------------------------------------------------------------------------


def with_type(**fields):
    onnx_model = model([node("Relu")])
    onnx_model.graph.input[0].type.CopyFrom(onnx.TypeProto(**fields))
    return onnx_model


def ring():
    return model([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"])])


def text_tensor():
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1])
    tensor.string_data.append(b"import os")
    return model([node("Identity", ["w"])], [tensor])


bad("a ring", ring)
bad("a value from nowhere", lambda: model([node("Relu", ["oh"])]))
bad("a value that is there twice", lambda: model([node("Relu"), node("Tanh")]))
bad("a value over an input", lambda: model([node("Relu", ["x"], ["x"])]))
bad("an output from nowhere", lambda: model([node("Relu", ["x"], ["z"])]))
bad("a domain", lambda: model([node("Run", domain="com.evil")]))
bad("trees", lambda: model([node("TreeEnsembleRegressor", domain="ai.onnx.ml")]))
bad("an operator that runs code", lambda: model([node("PyOp", module="os")]))
bad("an operator named as a method", lambda: model([node("__init__")]))
bad("an attribute of another kind", lambda: model([node("Softmax", axis="os")]))
bad("an attribute that is not known", lambda: model([node("Relu", run="ran")]))
bad("an axis that is not there", lambda: model([node("Softmax", axis=HUGE)]))
bad("a permutation that is none", lambda: model([node("Transpose", perm=[0, 0])]))
bad("a permutation of many", lambda: model([node("Transpose", perm=[0] * 99)]))
bad("too many inputs", lambda: model([node("Relu", ["x"] * 999)]))
bad("too many outputs", lambda: model([node("Relu", ["x"], ["y", *"abc"])]))
bad("no outputs", lambda: model([node("Relu", ["x"], [])]))
bad("a sequence", lambda: with_type(sequence_type=onnx.TypeProto.Sequence()))
bad("a map", lambda: with_type(map_type=onnx.TypeProto.Map()))
bad("strings", text_tensor)
bad("an opset of the future", lambda: model([node("Relu")], opset=HUGE))
bad("an opset of the past", lambda: model([node("Relu")], opset=1))
bad("no opset", lambda: model([node("Relu")], opset_imports=[]))
bad("an unsupported operator", lambda: model([node("StringNormalizer")]))
bad("random numbers", lambda: model([node("RandomNormalLike")]))


# --- graphs in .keras files -----------------------------------------------------------


def in_config(name, change):
    """Register an attack by the config of a model that was read from ONNX."""

    def make(folder):
        save_onnx(folder / "good.onnx")
        members = members_of(folder, lambda: saving.load_onnx(folder / "good.onnx"))
        config = json.loads(members["config.json"])
        change(config["config"])
        members["config.json"] = json.dumps(config).encode()
        return zipped(folder, members.items())

    attack(f"keras: the graph of an ONNX file with {name}", make)


def with_huge_array(config):
    shape = {"dtype": "int64", "shape": [HUGE], "data": ""}
    config["graph"]["initializers"]["more"] = shape


def with_huge_weight(config):
    config["weights"][0][3] = [HUGE, HUGE]


def with_growth(config):
    first = config["graph"]["nodes"][0]
    shape = np.array([HUGE, HUGE]).tobytes()
    config["graph"]["initializers"]["huge"] = {
        "dtype": "int64",
        "shape": [2],
        "data": base64.b64encode(shape).decode(),
    }
    description = {"name": "n", "op": "ConstantOfShape", "inputs": ["huge"]}
    description |= {"outputs": ["more"], "attributes": {}}
    config["graph"]["nodes"] = [description, first, *config["graph"]["nodes"][1:]]
    config["graph"]["outputs"].append(["more", "float32", None])


def with_class(config):
    config["graph"]["nodes"][0]["attributes"]["class_name"] = {
        "class_name": "function",
        "config": "system",
        "module": "os",
    }


def with_ring(config):
    nodes = config["graph"]["nodes"]
    nodes[0]["inputs"][0] = nodes[-1]["outputs"][0]


in_config("an array without data", with_huge_array)
in_config("a weight of an enormous shape", with_huge_weight)
in_config("a node that grows", with_growth)
in_config("a class in it", with_class)
in_config("a ring", with_ring)
in_config("another opset", lambda config: config.update(opset="17"))
in_config("no nodes", lambda config: config["graph"].update(nodes={}))
in_config("a layer that is a path", lambda c: c["weights"][0].__setitem__(1, "../a"))
in_config("an order that is none", lambda c: c["weights"][0].__setitem__(5, [0] * 4))
in_config("a weight twice", lambda c: c["weights"].append(c["weights"][0]))
