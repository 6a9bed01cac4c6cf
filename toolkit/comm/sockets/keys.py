"""Keys of a job: each process derives the same keys from the secret of the job.

A process accepts a connection only if the client has the private key of the job, and
sends data only to a server that has the other private key. ZeroMQ encrypts and
authenticates all data by CURVE, the protocol of CurveCP. Each connection has its own
temporary keys, so that recorded data cannot be replayed or decrypted later.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from toolkit.comm.account_secret import MIN_SECRET_SIZE
from toolkit.errors import LaunchError

# Bytes of a random secret.
SECRET_SIZE = 32
SECRET_COMMAND = "export TOOLKIT_JOB_SECRET=$(openssl rand -hex 32)"


@cache
def library() -> ModuleType:
    """Import ZeroMQ; most processes belong to no job and do not need it.

    Raises:
        LaunchError: the library has no encryption.
    """
    import zmq

    if not zmq.has("curve"):
        raise LaunchError(
            f"sockets: expected a ZeroMQ library with CURVE; received version "
            f"{zmq.zmq_version()} without it. Install the wheel of pyzmq: "
            "pip install --force-reinstall pyzmq"
        )
    return zmq


class Keys(NamedTuple):
    """Key pairs of a job in the text form of ZeroMQ (Z85)."""

    server_public: bytes
    server_private: bytes
    client_public: bytes
    client_private: bytes


def derive_keys(secret: bytes) -> Keys:
    """Return the keys of the job with this secret.

    Args:
        secret: at least `MIN_SECRET_SIZE` bytes.

    Raises:
        LaunchError: the secret is too short.
    """
    if len(secret) < MIN_SECRET_SIZE:
        raise LaunchError(
            f"TOOLKIT_JOB_SECRET: expected a secret text of at least {MIN_SECRET_SIZE} "
            f"characters; received {len(secret)}. Create one: {SECRET_COMMAND}"
        )
    from zmq.utils import z85

    encode: Callable[[bytes], bytes] = z85.encode
    pairs: list[bytes] = []
    for role in (b"server", b"client"):
        digest = hashlib.blake2b(secret, digest_size=32, person=b"toolkit " + role)
        private_key = encode(digest.digest())
        pairs += [library().curve_public(private_key), private_key]
    return Keys(*pairs)


def create_job_folder() -> Path:
    """Create the private folder of a job, with its secret and its sockets.

    Only this account can open it. Its path is short, because the system limits the path
    of a socket to about 100 characters.
    """
    parent = tempfile.gettempdir()
    if len(parent) > 80 and os.path.isdir("/tmp"):
        parent = "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="toolkit-", dir=parent))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(folder / "secret", flags, 0o600)
    with open(descriptor, "wb") as file:
        file.write(os.urandom(SECRET_SIZE))
    return folder
