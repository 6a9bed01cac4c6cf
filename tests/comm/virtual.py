"""Processes of a job over sockets as threads of one process."""

import threading

from toolkit.comm.sockets.keys import create_job_folder
from toolkit.comm.sockets.rendezvous import Membership, join_job

SECRET = b"a secret of 24 characters"


def memberships(folder, count, secret=SECRET):
    """Return the memberships of the processes of a job, which listen in a folder."""
    root = f"ipc://{folder}/0"
    return [
        Membership(rank, count, f"ipc://{folder}/{rank}", root, "", secret)
        for rank in range(count)
    ]


def tcp_memberships(port, count, secret=SECRET):
    """Return the memberships of the processes of a job, which listen at TCP ports."""
    root = f"tcp://127.0.0.1:{port}"
    return [
        Membership(rank, count, "tcp://127.0.0.1:*" if rank else root, root, "", secret)
        for rank in range(count)
    ]


def run(count, function, timeout=30, job=None, join_timeout=10):
    """Return the results of a function of the group, called on each rank."""
    job = job or memberships(create_job_folder(), count)
    results, errors, groups = [None] * count, [], [None] * count
    has_ended = threading.Barrier(count)

    def run_rank(rank):
        try:
            groups[rank] = join_job(job[rank], errors.append, join_timeout)
            results[rank] = function(groups[rank])
        except BaseException as error:
            errors.append(error)
        finally:
            has_ended.wait(timeout)
            if groups[rank] is not None:
                groups[rank].node.close(0.5)

    threads = [threading.Thread(target=run_rank, args=(r,)) for r in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    if errors:
        raise errors[0]
    return results
