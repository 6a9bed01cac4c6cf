"""The token of a cluster: its owner can read and change the Variables of the tasks."""

from __future__ import annotations

from toolkit.comm.account_secret import account_secret


def token() -> bytes:
    """Return the token of the clusters of this account: see `account_secret`."""
    return account_secret("cluster_token", "TOOLKIT_CLUSTER_TOKEN")
