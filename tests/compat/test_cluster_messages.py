"""Tests of messages between tasks: graphs as data, and malicious input."""

import json
import os
import random
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow.v1 as tf
from tests.ops.samples import SAMPLES
from tests.ops.table import is_float
from toolkit import ops, tree
from toolkit.comm.authentication import Acceptor, authenticate
from toolkit.compat.tensorflow.v1.cluster import frames
from toolkit.compat.tensorflow.v1.cluster.frames import FrameError
from toolkit.compat.tensorflow.v1.cluster.graph_codec import Decoder, Encoder
from toolkit.compat.tensorflow.v1.cluster.token import token
from toolkit.compiler.evaluate import evaluate
from toolkit.errors import ArgumentError, CommunicationError, UnsupportedError
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, format_graph, primitive

# Graphs in addition to the table of operations: gradients, loops, random numbers.
FUNCTIONS = {
    "branches and loops": lambda x: toolkit.ops.cond(
        ops.sum(x) > 0,
        lambda: ops.while_loop(lambda y: ops.max(y) < 9, lambda y: (y * 2,), (x,))[0],
        lambda: ops.scan(lambda c, y: (c + y, c), ops.zeros(3), x)[1],
    ),
    "random": lambda x: x + toolkit.random.normal((4, 3), seed=1),
    "infinite": lambda x: ops.clip(x, -np.inf, np.inf) * complex(0, 1).imag,
}


def traced(function, *arrays):
    return toolkit.function(function).get_concrete_function(*arrays).graph


def send_graph(graph):
    """Return the graph after its transfer, and the transferred data."""
    arrays = []
    data = json.loads(json.dumps(Encoder(arrays).graph(graph)))
    decoded = Decoder(arrays).graph(data)
    decoded.verify()
    return decoded


def values_of(graph, arrays):
    feeds = dict(zip(graph.inputs, arrays, strict=True))
    return [y.numpy().tobytes() for y in evaluate(graph, graph.outputs, feeds)]


def test_graphs_of_all_operations_round_trip():
    covered = set()
    for row in SAMPLES:
        if not row.traced:
            continue

        def call(*leaves, row=row):
            return row.call(*tree.pack_sequence_as(row.inputs, list(leaves)))

        leaves = tree.flatten(row.inputs)
        leaves = [x.astype("float32") if is_float(x) else x for x in leaves]
        try:
            graph = traced(call, *leaves)
        except toolkit.errors.ToolkitError:
            continue  # for example, an operation without float32
        covered |= {node.op.name for node in graph.walk()}
        assert format_graph(send_graph(graph)) == format_graph(graph), str(row)
    assert len(covered) > 100


@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_with_bodies_round_trip(name):
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    graph = traced(FUNCTIONS[name], x)
    decoded = send_graph(graph)
    assert format_graph(decoded) == format_graph(graph)
    assert values_of(decoded, [x]) == values_of(graph, [x])


def test_gradients_round_trip():
    def gradient(x, w):
        with toolkit.GradientTape() as tape:
            tape.watch([x, w])
            y = ops.max_pool(ops.conv(x, w, padding="same"), 2)
            y = ops.sum(ops.gelu(y) ** 2)
        return tape.gradient(y, [x, w])

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 8, 8, 3)).astype("float32")
    w = rng.normal(size=(3, 3, 3, 4)).astype("float32")
    graph = traced(gradient, x, w)
    assert values_of(send_graph(graph), [x, w]) == values_of(graph, [x, w])


def test_unregistered_primitives_are_refused():
    name = "only_here"
    try:
        local_primitive = primitive(
            name, Kind.ELEMENTWISE, lambda x: x, scalar=lambda s, x: x
        )
        graph = traced(
            lambda x: toolkit.core.tensor.bind(local_primitive, x),
            np.ones(2, "float32"),
        )
        PRIMITIVES.pop(name)
        with pytest.raises(UnsupportedError, match="'only_here' is not a primitive"):
            send_graph(graph)
    finally:
        PRIMITIVES.pop(name, None)


def test_attributes_must_be_data():
    graph = traced(ops.exp, np.ones(2, "float32"))
    (node,) = graph.nodes
    wrong = Node(node.op, node.inputs, {"hook": print}, node.outputs)
    encoder = Encoder([], {wrong: "mine"})
    with pytest.raises(UnsupportedError, match="'mine' .*receive its hook, a builtin"):
        encoder.graph(Graph(graph.inputs, (wrong,), graph.outputs))


def graph_data(nodes, **fields):
    return {"inputs": [[0, "float32", [2]]], "nodes": nodes, "outputs": [0], **fields}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        graph_data([["__import__", [0], {}, [1], None]]),
        graph_data([["all_gather", [0], {}, [1], None]]),
        graph_data([["exp", [7], {}, [1], None]]),
        graph_data([["exp", [0], {}, [0], None]]),
        graph_data([["exp", [0], {}, [1, 2], None]]),
        graph_data([["exp", [0, 0], {}, [1], None]]),
        graph_data([["exp", [0], {"x": 1}, [1], None]]),
        graph_data([["exp", [0], {}, [1], "cpu:99"]]),
        graph_data([["exp", [{"constant": 3}], {}, [1], None]]),
        graph_data([["sum", [0], {"axes": {"eval": "1"}}, [1], None]]),
        graph_data([["sum", [0], {"axes": {"tuple": [9]}}, [1], None]]),
        graph_data(
            [["broadcast_to", [0], {"shape": {"tuple": [2**40, 2]}}, [1], None]]
        ),
        graph_data([["exp", [0], {}, ["a"], None]]),
        graph_data([], outputs=[9]),
        graph_data([], inputs=[[0, "object", [2]]]),
        graph_data([], inputs=[[0, "float32", [-2]]]),
        graph_data([], inputs=[[0, "float32", [2**60, 2**60]]]),
    ],
    ids=str,
)
def test_invalid_graphs_are_refused(data):
    with pytest.raises(toolkit.errors.ToolkitError):
        Decoder([]).graph(data)


def graph_of_zero():
    with tf.Graph().as_default() as graph:
        tf.placeholder("float32", (), name="x") + 1.0
    return graph


WHO = {"cluster": {"worker": {"0": "127.0.0.1:1"}}, "task": ["worker", 0]}


@pytest.mark.parametrize(
    "replies",
    [
        [{}],
        [{"cluster": 3, "task": 0}],
        [{**WHO, "task": ["chief", 0]}],
        [{"type": "error", "kinds": 7, "message": None}],
        [b"HTTP/1.1 200 OK\r\n\r\n" * 9],
    ],
    ids=str,
)
def test_invalid_replies_are_errors(replies, monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gate = Acceptor(listener, token())

        def answer():
            with gate.accept() as connection:
                for reply in replies:
                    frames.receive(connection)
                    connection.sendall(reply if type(reply) is bytes else frame(reply))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(CommunicationError):
            target = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
            with tf.Session(target, graph_of_zero()) as session:
                session.run("add:0", {"x:0": 1.0})
        thread.join()


# --- frames ---------------------------------------------------------------------------


def pair():
    return socket.socketpair()


def test_arrays_of_all_dtypes_round_trip():
    arrays = [
        np.arange(6, dtype="int64").reshape(2, 3).T,
        np.zeros((0, 3), "float16"),
        np.array(True),
        np.array([1 + 2j], "complex64"),
        ops.cast(np.array([1.5, 2.0]), "bfloat16").numpy(),
        np.random.default_rng(0).normal(size=(300, 300)),
    ]
    a, b = pair()
    with a, b:
        thread = threading.Thread(target=frames.send, args=(a, {"type": "x"}, arrays))
        thread.start()
        header, received = frames.receive(b)
        thread.join()
    assert header == {"type": "x"}
    for x, y in zip(arrays, received, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        assert x.tobytes() == y.tobytes()


def frame(header, raw=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sI", b"TKT1", len(text)) + text + raw


HOSTILE = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "huge header": struct.pack("<4sI", b"TKT1", 2**32 - 1),
    "no JSON": frame(b"{"),
    "no object": frame([1]),
    "deep": frame(b"[" * 100_000),
    "deeper than allowed": frame(b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"),
    "many arrays": frame({"arrays": [["int8", []]] * 100_001}),
    "large array": frame({"arrays": [["int8", [2**40]]]}),
    "negative": frame({"arrays": [["int8", [-1]]]}),
    "objects": frame({"arrays": [["object", [1]]]}, b"12345678"),
    "pickle": b"\x80\x04\x95" + b"x" * 64,
    "short": frame({"arrays": [["int8", [10]]]}, b"123"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_frames_are_refused(name):
    a, b = pair()

    def write():
        with a, suppress(OSError):  # the server may reply before it has received all
            a.sendall(HOSTILE[name])

    thread = threading.Thread(target=write)
    thread.start()
    with b, pytest.raises(FrameError):
        frames.receive(b, 5.0)
    thread.join()


def test_closed_connection_has_a_distinct_error():
    a, b = pair()
    with b:
        a.close()
        with pytest.raises(EOFError):
            frames.receive(b)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "1")
    server = tf.train.Server.create_local_server()
    yield server
    server.stop()


def address_of(server):
    host, _, port = server.target.removeprefix("tcp://").rpartition(":")
    return host, int(port)


def request(server, *messages):
    """Send bytes and return the reply, up to the end of the connection or a timeout."""
    with socket.create_connection(address_of(server), 5.0) as connection:
        authenticate(connection, token(), 5.0)
        replies = []
        for message in messages:
            connection.sendall(message)
            try:
                replies.append(frames.receive(connection, 5.0)[0])
            except (EOFError, FrameError, OSError):
                break
        return replies


def is_alive(server):
    return request(server, frame({"type": "ping"})) == [{}]


def test_unknown_peers_receive_no_reply(server):
    message = frame({"type": "assign", "name": "v", "arrays": [["int8", []]]}, b"1")
    for first in (message, bytes(64) + message):
        with socket.create_connection(address_of(server), 5.0) as stranger:
            stranger.sendall(first)
            with suppress(ConnectionError):
                received = b""
                while chunk := stranger.recv(1000):
                    received += chunk
            assert len(received) <= 32  # the bytes of its authentication
    (reply,) = request(server, frame({"type": "known", "names": ["v"]}))
    assert reply == {"known": [False]}


def test_wrong_token_error_names_a_remedy(server, monkeypatch):
    monkeypatch.setenv("TOOLKIT_CLUSTER_TOKEN", "of another account")
    with pytest.raises(CommunicationError, match="TOOLKIT_CLUSTER_TOKEN"):
        with tf.Session(server.target, graph_of_zero()) as session:
            session.run("add:0", {"x:0": 1.0})


def test_token_from_the_environment(monkeypatch):
    monkeypatch.setenv("TOOLKIT_CLUSTER_TOKEN", "a secret of mine, long")
    assert token() == b"a secret of mine, long"
    monkeypatch.setenv("TOOLKIT_CLUSTER_TOKEN", "short")
    with pytest.raises(ArgumentError, match="at least 16 characters; received 5"):
        tf.train.Server.create_local_server()


@pytest.mark.skipif(os.name == "nt", reason="files have no modes there")
def test_token_from_a_file(tmp_path, monkeypatch):
    monkeypatch.delenv("TOOLKIT_CLUSTER_TOKEN", raising=False)
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    secret = token()
    assert len(secret) == 64 and token() == secret
    assert os.listdir(tmp_path / "home") == ["cluster_token"]
    path = tmp_path / "home" / "cluster_token"
    assert path.stat().st_mode & 0o777 == 0o600
    for target, mode in ((path, 0o640), (path, 0o602), (path.parent, 0o777)):
        before = target.stat().st_mode
        target.chmod(mode)
        with pytest.raises(CommunicationError, match="only this account"):
            token()
        target.chmod(before)
    assert token() == secret
    path.write_text("")
    with pytest.raises(ArgumentError, match="at least 16"):
        token()


def test_concurrent_tasks_share_a_token_file(tmp_path, monkeypatch):
    monkeypatch.delenv("TOOLKIT_CLUSTER_TOKEN", raising=False)
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: token(), range(40)))) == 1


def test_malicious_messages_are_refused(server):
    opened = frame({"type": "open", "session": "0" * 32})
    rows = [
        [frame({})],
        [frame({"type": "_check"})],
        [frame({"type": ["run"]})],
        [frame({"type": "run", "program": 0, "run": 0})],
        [frame({"type": "open", "session": "x"})],
        [frame({"type": "open", "session": 7})],
        [opened, opened],
        [opened, frame({"type": "run", "program": 5, "run": 0})],
        [opened, frame({"type": "register", "program": 0})],
        [opened, frame({"type": "register", "program": 0, "parts": [{}], "feeds": []})],
        [frame({"type": "assign", "name": "v"})],
        [frame({"type": "assign", "name": 3, "arrays": [["int8", []]]}, b"1")],
        [frame({"type": "wait", "name": "v", "above": 0, "patience": "x"})],
        [frame({"type": "known", "names": 3})],
        [frame({"type": "give", "session": "none", "run": "x", "value": 0})],
    ]
    for messages in rows:
        assert request(server, *messages)[-1]["type"] == "error", messages
    for message in HOSTILE.values():
        replies = request(server, message)
        assert all(reply["type"] == "error" for reply in replies)
    assert is_alive(server)
    # Values for unknown sessions are dropped without a reply.
    header = {"type": "give", "session": "none", "run": 0, "value": 0}
    data = frame({**header, "arrays": [["int8", [3]]]}, b"123")
    assert request(server, data + frame({"type": "ping"})) == [{}]


def registration(graph, arrays, **fields):
    """Return a message that registers a part which returns its first result."""
    program = {
        "graph": Encoder(arrays).graph(graph),
        **{name: [] for name in ("takes", "reads", "writes", "gives")},
        "results": [1],
        "fetches": [1],
    }
    header = {
        "type": "register",
        "program": 0,
        "parts": [program | fields],
        "feeds": [0],
    }
    specs = [[str(x.dtype), list(x.shape)] for x in arrays]
    raw = b"".join(x.tobytes() for x in arrays)
    return frame({**header, "arrays": specs}, raw)


@pytest.mark.parametrize(
    "argument", [["float32", [2]], ["float32", [4, 1]], ["int32", [4]]], ids=str
)
def test_programs_check_their_inputs(server, argument):
    graph = traced(ops.exp, np.ones(4, "float32"))
    opened = frame({"type": "open", "session": "0" * 32})
    header = {"type": "run", "program": 0, "run": 0}
    raw = np.zeros(argument[1], argument[0]).tobytes()
    *_, good = request(
        server,
        opened,
        registration(graph, []),
        frame({**header, "arrays": [["float32", [4]]]}, bytes(16)),
    )
    assert good == {"fetched": [1]}
    *_, bad = request(
        server,
        opened,
        registration(graph, []),
        frame({**header, "arrays": [argument]}, raw),
    )
    assert "expected a value of float32[4]" in bad["message"]
    assert is_alive(server)


def test_server_survives_mutated_messages(server, monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "0.1")  # some declare too many bytes
    graph = traced(
        lambda x: ops.sum(ops.exp(x) @ np.ones((3, 2), "float32")), np.ones((4, 3))
    )
    arrays = []
    variable, gives = ["v", "float32", [2], 50], [1, [["local", 0]]]
    message = registration(graph, arrays, reads=[variable], gives=[gives])
    size = sum(x.nbytes for x in arrays)
    opened = frame({"type": "open", "session": "0" * 32})
    assert request(server, opened, message) == [{"programs": []}, {}]
    generator = random.Random(0)
    digits = [i for i in range(8, len(message) - size) if chr(message[i]).isdigit()]
    for iteration in range(200):
        changed = bytearray(message)
        for _ in range(generator.choice((1, 2, 8))):
            if iteration % 2:
                changed[generator.choice(digits)] = generator.choice(b"0123456789")
            else:
                changed[generator.randrange(8, len(message))] = generator.randrange(256)
        request(server, opened, bytes(changed))
    assert is_alive(server)


def test_truncated_message_is_a_lost_connection():
    a, b = socket.socketpair()
    with b:
        with a:
            a.sendall(b"T")
        with pytest.raises(EOFError, match="a message is truncated"):
            frames.receive(b)
