"""Serve models over HTTP, until the process receives SIGTERM or Ctrl-C.

Clients use the Open Inference Protocol, POST /v2/models/NAME/infer, with JSON or binary
tensors, or the TensorFlow Serving API, POST /v1/models/NAME:predict. Concurrent
requests are batched. /metrics has metrics for Prometheus.

SIGHUP reloads the files, and --watch reloads them after changes; an invalid file keeps
the previous version. The server listens only on this machine unless --host is set. Use
a proxy for encryption and public networks.

Examples:
  $ toolkit serve model.keras
  $ toolkit serve mnist=model.keras other=other.keras --port 8080
  $ toolkit serve model.keras --batch 64 --wait 0.5ms --watch 5s
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from pathlib import Path

from toolkit.cli import parse_count
from toolkit.cli.custom_objects import add_import_option, import_objects
from toolkit.console.messages import print_message
from toolkit.errors import ArgumentError
from toolkit.serving import Batching, Limits, Server, Service, threads

_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_SIZE_UNITS = {"": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the models, the address, the batching options and the limits."""
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        metavar="[NAME=]FILE",
        help="a .keras, .h5 or .onnx file, the folder of a model, or an exported "
        "library (.so), which is executable code; the name of the file is the "
        "default name",
    )
    add("--host", default="127.0.0.1", help="the address of the server; 127.0.0.1")
    add(
        "--port",
        type=_parse_port,
        default=8000,
        metavar="N",
        help="the port; 8000; 0 selects a free port",
    )
    defaults = Batching()
    text = f"the maximum rows of a batch; {defaults.size}"
    add("--batch", type=parse_count, default=defaults.size, metavar="N", help=text)
    text = "how long a batch waits for more requests, such as 2ms; 0"
    add("--wait", type=_parse_seconds, default=defaults.wait, metavar="TIME", help=text)
    text = f"batches that run in parallel, each in a thread; {defaults.workers}"
    add("--workers", type=parse_count, default=defaults.workers, metavar="N", help=text)
    text = (
        "pad all batches to one size, so that a response does not depend on other "
        "requests"
    )
    add("--deterministic", action="store_true", help=text)
    text = (
        f"maximum number of waiting requests; more receive status 429; {defaults.queue}"
    )
    add("--queue", type=parse_count, default=defaults.queue, metavar="N", help=text)
    text = f"time after which a request receives status 504; {defaults.timeout:g}s"
    add(
        "--timeout",
        type=_parse_positive_seconds,
        default=defaults.timeout,
        metavar="TIME",
        help=text,
    )
    text = "interval of the check for changed files, such as 5s; default: never"
    add("--watch", type=_parse_positive_seconds, default=0.0, metavar="TIME", help=text)
    _add_limits(parser)
    add_import_option(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the limits of requests and connections."""
    add, limits = parser.add_argument, Limits()
    text = f"maximum body of a request; {limits.body >> 20}MB"
    add(
        "--max-body", type=_parse_nbytes, default=limits.body, metavar="SIZE", help=text
    )
    text = f"maximum JSON in a body; {limits.json >> 20}MB"
    add(
        "--max-json", type=_parse_nbytes, default=limits.json, metavar="SIZE", help=text
    )
    text = f"maximum rows of a request; {limits.rows}"
    add("--max-rows", type=parse_count, default=limits.rows, metavar="N", help=text)
    text = f"maximum size of all outputs of a request; {limits.answer >> 20}MB"
    add(
        "--max-answer",
        type=_parse_nbytes,
        default=limits.answer,
        metavar="SIZE",
        help=text,
    )
    text = f"maximum number of open connections; {limits.connections}"
    connections = limits.connections
    add(
        "--max-connections",
        type=parse_count,
        default=connections,
        metavar="N",
        help=text,
    )
    text = f"time limit for the receipt of a request; {limits.read_timeout:g}s"
    seconds = limits.read_timeout
    add(
        "--read-timeout",
        type=_parse_positive_seconds,
        default=seconds,
        metavar="TIME",
        help=text,
    )


def run(options: argparse.Namespace) -> int:
    """Load, compile and warm up the models, then serve."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s"
    )
    batching = Batching(
        size=options.batch,
        wait=options.wait,
        workers=options.workers,
        queue=options.queue,
        timeout=options.timeout,
        one_size=options.deterministic,
    )
    limits = Limits(
        body=options.max_body,
        json=options.max_json,
        rows=options.max_rows,
        answer=options.max_answer,
        held=max(Limits.held, 2 * options.max_body),
        connections=options.max_connections,
        read_timeout=options.read_timeout,
    )
    service = Service(
        _parse_models(options.models), batching, import_objects(options), limits
    )
    server = Server(service, options.host, options.port, options.watch)
    server.run(_print_address, is_last=True)
    if threads.has_running_threads():
        # Abandoned threads are inside libraries, whose exit handlers would wait or
        # crash.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
    return 0


def _print_address(server: Server) -> None:
    names = ", ".join(server.service.models)
    host = f"[{server.host}]" if ":" in server.host else server.host
    print_message(f"serving {names} at http://{host}:{server.port}")


def _parse_models(models: list[str]) -> dict[str, Path]:
    """Return name -> path; the default name is the stem of the file."""
    paths: dict[str, Path] = {}
    for text in models:
        name, equals, path = text.partition("=")
        if not equals or not re.fullmatch(r"[\w.-]+", name):
            name, path = Path(text).name.split(".")[0], text
        if name in paths:
            raise ArgumentError(f"serve: expected each name once; received {name!r}")
        paths[name] = Path(path)
    return paths


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected 0 to 65535; received {text!r}")
    return int(text)


def _parse_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+|\d*\.\d+)(us|ms|s|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"expected a time such as 0.5ms or 2s; received {text!r}"
        )
    return float(match[1]) * _TIME_UNITS[match[2]]


def _parse_positive_seconds(text: str) -> float:
    seconds = _parse_seconds(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"expected a time > 0; received {text!r}")
    return seconds


def _parse_nbytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)(KB|MB|GB|)", text)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(
            f"expected a size such as 16MB; received {text!r}"
        )
    return int(match[1]) * _SIZE_UNITS[match[2]]
