"""Cost and robustness of serving: `toolkit serve`, compared with other servers.

    python benchmarks/serving/serving.py
    python benchmarks/serving/serving.py --only speed --peer-python /path/to/python

Bars, for an MLP 784-512-512-10 in float32 with binary tensors of the Open Inference
Protocol:

- CPU time of the server's process per request of one row: at most 150 microseconds at 1
  connection, and 75 at 16.
- No wrong result among 100,000 mixed requests.
- No request lost during reloads of the file.
- No crash in 10,000 malformed requests.

uvicorn and granian run `toolkit.serving.App` if the peers' interpreter has them. The
script needs Linux's /proc.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from serving_processes import (
    Reply,
    ServerProcess,
    ask,
    binary_request,
    load,
    post,
)

import toolkit
from toolkit import layers

CONNECTIONS = {1: 150.0, 16: 75.0}  # and the bar in microseconds
INFER, PREDICT = "/v2/models/mlp/infer", "/v1/models/mlp:predict"
FACTORY = "toolkit.serving.app:from_environment"
PEERS = {
    "uvicorn": ["--factory", FACTORY, "--port", "{port}", "--no-access-log"],
    "granian": ["--interface", "asgi", "--factory", FACTORY, "--port", "{port}"],
}


def make_model(seed: int) -> Any:
    """Build the network of all measurements."""
    toolkit.utils.set_random_seed(seed)
    model = toolkit.Sequential([toolkit.Input((784,), name="x")], name="mlp")
    for units in (512, 512):
        model.add(layers.Dense(units, activation="relu"))
    model.add(layers.Dense(10, activation="softmax", name="y"))
    return model


def own_server(path: Path, *options: str) -> ServerProcess:
    """Start `toolkit serve`."""
    command = [sys.executable, "-m", "toolkit", "serve", f"mlp={path}"]
    return ServerProcess([*command, "--port", "{port}", *options], {})


# --- speed ----------------------------------------------------------------------------


def speed(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return CPU time per request, and requests per second, for each server."""
    script = str(Path(__file__).with_name("serving_processes.py"))
    rows: dict[str, Any] = {"toolkit serve": own_server}
    rows["http.server"] = lambda path: ServerProcess(
        [sys.executable, script, "{port}", str(path)], {}
    )
    for name, options in PEERS.items():
        rows[name] = lambda path, name=name, options=options: ServerProcess(
            [arguments.peer_python, "-m", name, *options],
            {"TOOLKIT_MODELS": f"mlp={path}"},
        )
    results = {}
    for name, start in rows.items():
        try:
            server = start(path)
        except ConnectionError:
            print(f"{name:15} left out: does not start, or is not installed")
            continue
        with closing(server):
            results[name] = _speed_of(server, arguments)
        texts = [
            f"{n} connections {row['cpu_us']:7.1f} us, {row['per_second']:7.0f}/s"
            for n, row in results[name].items()
        ]
        print(f"{name:15} {';  '.join(texts)}", flush=True)
    for connections, bar in CONNECTIONS.items():
        cpu = results["toolkit serve"][connections]["cpu_us"]
        print(f"bar {bar:g} us at {connections}: {'met' if cpu <= bar else 'NOT met'}")
    return results


def _speed_of(server: ServerProcess, arguments: argparse.Namespace) -> dict[int, Any]:
    x = np.random.default_rng(0).random((1, 784), dtype="float32")
    data = binary_request(INFER, "x", x)
    results: dict[int, Any] = {}
    for connections in CONNECTIONS:
        rounds = [
            _round(server, connections, data, arguments.requests)
            for _ in range(arguments.rounds)
        ]
        results[connections] = {
            "cpu_us": min(cpu for cpu, _ in rounds),
            "per_second": max(rate for _, rate in rounds),
        }
    return results


def _round(
    server: ServerProcess, connections: int, data: bytes, count: int
) -> tuple[float, float]:
    """Return CPU time in microseconds per request, and requests per second."""
    remaining, statuses = [count], Counter[int | None]()

    def following() -> tuple[bytes, None] | None:
        remaining[0] -= 1
        return (data, None) if remaining[0] >= 0 else None

    def take(_: None, reply: Reply | None) -> None:
        statuses[reply and reply.status] += 1

    cpu, start = server.cpu_seconds(), time.perf_counter()
    load(server, connections, following, take)
    seconds = time.perf_counter() - start
    assert statuses == {200: count}, statuses
    return (server.cpu_seconds() - cpu) / count * 1e6, count / seconds


# --- answers --------------------------------------------------------------------------


def _requests_of(x: np.ndarray[Any, Any]) -> list[bytes]:
    """Return requests for the same rows in each supported form."""
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32"}
    tensor["data"] = x.ravel().tolist()
    bodies = [
        (INFER, {"inputs": [tensor]}),
        (PREDICT, {"instances": x.tolist()}),
        (PREDICT, {"inputs": {"x": x.tolist()}}),
    ]
    texts = [post(path, json.dumps(body).encode()) for path, body in bodies]
    return [binary_request(INFER, "x", x), *texts]


def answers(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Send mixed requests of many clients, and compare the results with `predict`."""
    model = toolkit.saving.load_model(path)
    generator = np.random.default_rng(1)
    cases = []
    for _ in range(200):
        count = int(generator.choice([1, 1, 1, 2, 3, 7, 20, 45]))
        x = generator.standard_normal((count, 784), dtype="float32")
        cases.append((_requests_of(x), model.predict(x, verbose=0)))
    chance = random.Random(0)
    remaining, wrong, worst = [arguments.answers], [0], [0.0]

    def following() -> tuple[bytes, Any] | None:
        remaining[0] -= 1
        if remaining[0] < 0:
            return None
        requests, expected = chance.choice(cases)
        weights = [10, 1, 1, 1]  # JSON takes the client most of its time
        return chance.choices(requests, weights)[0], expected

    def take(expected: Any, reply: Reply | None) -> None:
        if reply is None or reply.status != 200:
            wrong[0] += 1
            return
        outputs = reply.outputs()
        error = float("inf")
        if outputs.shape == expected.shape:
            error = float(np.abs(outputs - expected).max())
        worst[0] = max(worst[0], error)
        wrong[0] += error > 1e-6

    with closing(own_server(path)) as server:
        load(server, 32, following, take)
    print(
        f"answers: {wrong[0]} wrong of {arguments.answers}; the largest difference "
        f"from predict is {worst[0]:.2g}"
    )
    return {"requests": arguments.answers, "wrong": wrong[0], "worst": worst[0]}


# --- reload ---------------------------------------------------------------------------


def reload(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write new versions of the file during requests."""
    models = [make_model(seed) for seed in range(3)]
    x = np.random.default_rng(2).standard_normal((2, 784), dtype="float32")
    expected = [model.predict(x, verbose=0) for model in models]
    file = path.with_name("changing.keras")
    models[0].save(file)
    data, counts, over = binary_request(INFER, "x", x), Counter(), threading.Event()

    def following() -> tuple[bytes, None] | None:
        return None if over.is_set() else (data, None)

    def take(_: None, reply: Reply | None) -> None:
        if reply is None or reply.status != 200:
            counts["lost"] += 1
            return
        outputs = reply.outputs()
        fits = [i for i, y in enumerate(expected) if np.abs(outputs - y).max() < 1e-6]
        counts[f"version of seed {fits[0]}" if fits else "lost"] += 1

    def change(server: ServerProcess) -> None:
        try:
            for i in range(arguments.reloads):
                models[(i + 1) % 3].save(file)
                server.process.send_signal(signal.SIGHUP)
                time.sleep(1.0)
        finally:
            over.set()

    with closing(own_server(file)) as server:
        changing = threading.Thread(target=change, args=[server])
        changing.start()
        load(server, 16, following, take)
        changing.join()
    count = sum(counts.values())
    print(f"reload: {counts['lost']} lost of {count}, in {arguments.reloads} reloads")
    return {"requests": count, **counts}


# --- malformed requests ---------------------------------------------------------------


def malformed(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Send requests with errors, each on a separate connection."""
    from tests.serving import malformed as wrong, serve

    small = path.with_name("small.keras")
    model = serve.mlp()
    model.save(small)
    generator, statuses = random.Random(arguments.seed), Counter()
    x = serve.rows(2, 5)
    with closing(own_server(small, "--read-timeout", "2s")) as server:
        before = server.resident_bytes()
        for _ in range(arguments.malformed):
            with closing(server.connect()) as client:
                reply: Any = Reply()
                try:
                    client.sendall(wrong.malformed(generator))
                    client.shutdown(1)
                    while (piece := client.recv(1 << 16)) and not reply.add(piece):
                        pass
                except ConnectionError:
                    pass
                statuses[reply.status if reply.data else "closed"] += 1
        grown = server.resident_bytes() - before
        alive = server.process.poll() is None
        reply = ask(server, serve.binary_request(x))
        right = reply is not None and np.allclose(
            reply.outputs(), model.predict(x, verbose=0), atol=1e-6
        )
    statuses_text = ", ".join(
        f"{key}: {n}" for key, n in sorted(statuses.items(), key=str)
    )
    print(f"malformed: {arguments.malformed}; {statuses_text}")
    print(
        f"  the server lives: {alive}; answers afterwards: {right}; its memory grew by "
        f"{grown / 2**20:.1f} MB"
    )
    counted = {str(key): n for key, n in statuses.items()}
    return {"statuses": counted, "alive": alive, "right": right, "grown": grown}


PARTS = {"speed": speed, "answers": answers, "reload": reload, "malformed": malformed}


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--only", choices=PARTS, action="append", help="a part; all of them")
    add("--quick", action="store_true", help="few requests, to see that it runs")
    add("--rounds", type=int, default=5, help="of which the least time counts")
    add("--requests", type=int, default=20_000, help="of a round")
    add("--answers", type=int, default=100_000, help="that are compared")
    add("--reloads", type=int, default=10, help="one each second")
    add("--malformed", type=int, default=10_000, help="requests")
    add("--seed", type=int, default=0, help="of malformed requests")
    add("--peer-python", default=sys.executable, help="the interpreter with peers")
    add("--json", type=Path, help="where to write all figures")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.requests, arguments.answers = 1, 200, 300
        arguments.reloads, arguments.malformed = 2, 100
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlp.keras"
        make_model(0).save(path)
        for name in arguments.only or PARTS:
            results[name] = PARTS[name](path, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
