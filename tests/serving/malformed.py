"""Malformed requests: mutants of valid ones, and invalid ones."""

import json
import random

from tests.serving.serve import binary_request, request, rows, tensor

_PATHS = (
    *("/v2/models/mlp/infer", "/v1/models/mlp:predict", "/v2", "/metrics", "/"),
    *("/v2/models/%00/infer", "/v2/models/" + "a" * 5000, "/v2/models/%ff%fe"),
    *("/v2/models/mlp/versions/-1/infer", "//v2", "/v2/../../etc/passwd", "/?" * 99),
)
_VALUES = (
    *(None, True, -1, 0, 2**63, 10**30, 1e308, "", "x" * 99, [], [[]], {}, [None]),
    *({"a": 1}, [[1], [2, 3]], "\ud800", float("nan"), float("inf"), [[[[[[]]]]]]),
)


def malformed(generator: random.Random) -> bytes:
    """Return a request that is almost always invalid."""
    make = generator.choice((_bytes, _head, _words, _words, _binary, _deep, _mutant))
    return make(generator)


def _bytes(generator):
    """Return random bytes."""
    return generator.randbytes(generator.randrange(1, 200)) + b"\r\n\r\n"


def _head(generator):
    """Return a head with invalid lines."""
    lines = [f"{generator.choice(('GET', 'POST', 'PUT', 'get', 'X Y'))} "]
    lines[0] += generator.choice(_PATHS)
    lines[0] += generator.choice(
        (" HTTP/1.1", " HTTP/1.0", " HTTP/9", "", " HTTP/1.1 ")
    )
    number = generator.choice((-1, 0, 5, 10**9, 10**20, "1e3", "0x5", "", "5, 5"))
    lines += generator.sample(
        [
            "Host: a",
            f"Content-Length: {number}",
            f"Inference-Header-Content-Length: {number}",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Expect: nothing",
            "Connection: upgrade",
            "X" * 20_000 + ": y",
            "no colon",
            ": no name",
            " folded: line",
            "Request-Timeout: -1",
        ],
        generator.randrange(0, 6),
    )
    return "\r\n".join([*lines, "", ""]).encode() + b"0\r\n\r\n"


def _good():
    return {"id": "a", "inputs": [tensor("x", rows(2, 5))], "outputs": [{"name": "y"}]}


def _words(generator):
    """Return valid JSON with one replaced value."""
    if generator.random() < 0.5:
        words, path = _good(), "/v2/models/mlp/infer"
    else:
        words, path = {"instances": rows(2, 5).tolist()}, "/v1/models/mlp:predict"
    text_of_words = words
    while True:
        key = generator.choice(
            list(text_of_words) if isinstance(text_of_words, dict) else range(2)
        )
        try:
            inner = text_of_words[key]
        except LookupError:
            break
        deeper = isinstance(inner, (dict, list)) and inner
        if not deeper or generator.random() < 0.3:
            text_of_words[key] = generator.choice(_VALUES)
            break
        text_of_words = inner
    return request("POST", path, json.dumps(words).encode())


def _binary(generator):
    """Return a binary tensor with inconsistent sizes."""
    x = rows(generator.randrange(1, 4), generator.randrange(1, 8))
    data = binary_request(x, generator.choice("xxyz"))
    old = f'binary_data_size": {x.nbytes}'.encode()
    size = generator.choice((x.nbytes, -1, 0, 2**62, "null", "[]", x.nbytes + 1))
    head, _, body = data.partition(b"\r\n\r\n")
    body = body.replace(old, f'binary_data_size": {size}'.encode())
    lines = [x for x in head.split(b"\r\n") if not x.startswith(b"Content-Length")]
    lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _deep(generator):
    """Return nested or long JSON."""
    count = generator.choice((9, 100, 10_000))
    sign = generator.choice(("[", '{"a":', '[{"a":', '"', "-", "1", "\\"))
    return request("POST", "/v2/models/mlp/infer", (sign * count).encode())


def _mutant(generator):
    """Return a valid request with some replaced bytes."""
    data = bytearray(
        generator.choice(
            (
                binary_request(rows(2, 5)),
                request("POST", "/v2/models/mlp/infer", _good()),
            )
        )
    )
    for _ in range(generator.randrange(1, 6)):
        at = generator.randrange(len(data))
        kind = generator.random()
        if kind < 0.6:
            data[at] = generator.randrange(256)
        elif kind < 0.8:
            del data[at : at + generator.randrange(1, 30)]
        else:
            data[at:at] = generator.randbytes(generator.randrange(1, 30))
    return bytes(data)
