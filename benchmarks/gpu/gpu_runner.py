"""Runner of steps in separate processes: in order, with time limits, stored as JSON.

It writes a record of all steps when a step starts, while it runs and when it ends. So a
crash loses at most some seconds. The next call reads the record, skips finished steps,
and repeats interrupted ones.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import gpu_needs

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = Path(__file__).resolve().parents[1]
FOLDERS = (BENCHMARKS / "gpu", BENCHMARKS / "peers")
# Seconds between two checks of a running step.
POLL = 2.0
# The outcomes of a step; a finished step runs again only on request.
OUTCOMES = ("passed", "failed", "cut", "running", "not begun", "left out")
DONE = ("passed", "failed")
LAST_WORDS = 2000


@dataclass(frozen=True)
class Step:
    """Step in one process.

    Attributes:
        name: of letters, digits, dots, hyphens and underscores.
        command: its arguments; in these and in the environment, {json} is the path of
            its result file, which it can write repeatedly, and {limit} is its time
            limit in seconds.
        limit: the time limit in seconds.
        minimum: the minimum remaining seconds to start it.
        modules, programs: its requirements.
        environment: additional environment variables.
    """

    name: str
    command: tuple[str, ...]
    limit: float
    minimum: float = 10.0
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def tree():
    """Return a short hash of the sources, to distinguish results of different ones."""
    folders = (ROOT / "toolkit", BENCHMARKS, ROOT / "tests" / "backends")
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    content = hashlib.sha256()
    for path in files:
        content.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return content.hexdigest()[:12]


class Session:
    """Record of steps, and its folder.

    Args:
        output: the folder of `session.json`, `session.txt` and `logs.tar.gz`.
        work: a folder for temporary files of this call.
        earlier: records of earlier calls, the last one last.
        search: folders that are first on the module path of each step.
    """

    def __init__(self, output, work, earlier=(), search=()):
        self.output, self.work = Path(output), Path(work)
        self.output.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        self.search = [str(path) for path in (*search, ROOT, *FOLDERS)]
        self.tree = tree()
        self.about = {}
        self.steps = {}
        for path in (*earlier, self.output):
            self._read(path)

    def _read(self, path):
        """Read the record of an earlier call, as far as possible."""
        path = Path(path)
        path = path / "session.json" if path.is_dir() else path
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(path.read_text("utf-8"))
            self.steps |= record["steps"]
            self.about |= record["about"]

    def has(self, module):
        """Return whether steps can import a module."""
        return any(gpu_needs.has(module, path) for path in self.search)

    def run(self, steps, end, retried=()):
        """Run the unfinished steps until the time limit.

        Args:
            steps: in execution order.
            end: the deadline, as a value of `monotonic`.
            retried: names of finished steps to repeat, or "failed".

        Returns:
            Whether all steps passed or were skipped.
        """
        for step in steps:
            before = self.steps.get(step.name, {}).get("outcome")
            is_wanted = step.name in retried or before in retried
            if before in DONE and not is_wanted:
                continue
            if reason := self._why_not(step):
                self._store(step, "left out", words=reason)
            elif end - monotonic() < step.minimum:
                if before is None:  # the results of an interrupted run stay
                    self._store(step, "not begun", words="no time was left")
            else:
                self._run(step, min(step.limit, end - monotonic()))
            self.save(steps)
            print(self.row(step.name), flush=True)
        return all(
            self.steps[s.name]["outcome"] in ("passed", "left out") for s in steps
        )

    def _why_not(self, step):
        absent = [name for name in step.programs if not _program(name)]
        absent += [name for name in step.modules if not self.has(name)]
        return f"no {', '.join(absent)}" if absent else ""

    def _store(self, step, outcome, **details):
        self.steps[step.name] = {"outcome": outcome, "tree": self.tree, **details}

    def _run(self, step, limit):
        log, path = self.work / f"{step.name}.log", self.work / f"{step.name}.json"
        path.unlink(missing_ok=True)
        start = monotonic()

        def save(outcome="running", words=""):
            details = {"seconds": round(monotonic() - start, 1), "limit": round(limit)}
            self._store(step, outcome, words=words or last_line(log), **details)
            with contextlib.suppress(OSError, ValueError):
                self.steps[step.name]["results"] = json.loads(path.read_text("utf-8"))
            if outcome != "passed":
                self.steps[step.name]["log"] = last_words(log)
            self.save()

        def expand(text):
            return text.replace("{json}", str(path)).replace("{limit}", str(int(limit)))

        variables = {name: expand(text) for name, text in step.environment.items()}
        command, environment = (
            list(map(expand, step.command)),
            self._environment(variables),
        )
        save()
        with open(log, "w", encoding="utf-8") as file:
            try:
                status = wait(command, file, environment, limit, save)
            except BaseException:
                save("cut", "the session was ended")
                raise
        if status is None:
            save("cut", f"ended after {limit:.0f} s: {last_line(log)}")
        elif status == 0:
            save("passed")
        else:
            name = f"{signal.Signals(-status).name}: " if status < 0 else ""
            save("failed", name + last_line(log))

    def _environment(self, variables):
        inherited = os.environ.get("PYTHONPATH")
        folders = [*self.search, *([inherited] if inherited else [])]
        paths = {"PYTHONPATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **paths, **variables}

    def save(self, steps=()):
        """Write the record, the summary, and all logs of this call in one file."""
        record = {"about": self.about, "steps": self.steps}
        _write(self.output / "session.json", json.dumps(record, indent=1, default=str))
        _write(self.output / "session.txt", self.summary())
        if steps:
            with tarfile.open(self.work / "logs.tar.gz", "w:gz") as archive:
                for path in sorted(self.work.glob("*.log")):
                    archive.add(path, path.name)
            shutil.copyfile(self.work / "logs.tar.gz", self.output / "logs.tar.gz")

    def summary(self):
        """Return the number of passed steps and the other outcomes, as text."""
        counts = Counter(step["outcome"] for step in self.steps.values())
        counts_text = ", ".join(
            f"{counts[name]} {name}" for name in OUTCOMES if counts[name]
        )
        lines = [f"{len(self.steps)} steps: {counts_text}", ""]
        lines += map(self.row, self.steps)
        return "\n".join(lines) + "\n"

    def row(self, name):
        """Return the outcome of a step, in a line."""
        step = self.steps[name]
        other = "" if step["tree"] == self.tree else " (of other sources)"
        seconds = f"{step['seconds']:6.1f} s" if "seconds" in step else " " * 8
        words = "" if step["outcome"] == "passed" else step["words"][:100]
        return f"{name:26} {step['outcome']:9} {seconds}{other}  {words}".rstrip()


def wait(command, file, environment, limit, look):
    """Return the exit status of a command; None if it exceeded the limit.

    On any exit, the command and all its child processes are terminated.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    end = monotonic() + limit
    try:
        while (remaining_seconds := end - monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(POLL, remaining_seconds))
            look()
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _program(name):
    path = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/local/cuda/bin"
    return shutil.which(name, path=path)


def _write(path, text):
    """Replace a file atomically, so that no reader sees a partial file."""
    aside = path.with_name(f".{path.name}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def last_words(log):
    """Return the end of a log."""
    with contextlib.suppress(OSError):
        return log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:]
    return ""


def last_line(log):
    """Return the last line of a log that is not empty."""
    lines = last_words(log).strip().splitlines()
    return lines[-1].strip() if lines else ""
