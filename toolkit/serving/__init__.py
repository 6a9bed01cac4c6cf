"""Model serving over HTTP: `toolkit serve`, or an ASGI application."""

from toolkit.serving.app import App
from toolkit.serving.batching import Batching
from toolkit.serving.limits import Limits
from toolkit.serving.servable import ModelServable, Servable
from toolkit.serving.server import Server
from toolkit.serving.service import Service
from toolkit.serving.tensors import TensorSpec

__all__ = [
    "App",
    "Batching",
    "Limits",
    "ModelServable",
    "Servable",
    "Server",
    "Service",
    "TensorSpec",
]
