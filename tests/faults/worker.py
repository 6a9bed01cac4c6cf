"""Read corrupt files in a separate process, and report the outcomes.

`guard.py` starts this process, because a case that hangs or crashes ends it. A number
in a shared file identifies the case.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from functools import cache
from pathlib import Path

from tests.faults import huge_numbers
from tests.faults.formats import BY_NAME, FORMATS, digest
from tests.faults.mutations import seeded
from toolkit import ops, saving
from toolkit.errors import ToolkitError
from toolkit.reading.budget import _memory_limit

SECONDS = (
    10  # of all processors, for one case, on a machine where a loop takes LOOP seconds
)
LOOP = 0.04  # seconds of a million iterations on an idle processor
GROWTH = 200 << 20  # bytes of memory, for one file of a few KB
SPACE = 3 << 29  # bytes of addresses, for all requests of a case
ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"),
    *("socket.connect", "ctypes.dlopen", "ctypes.dlsym", "webbrowser.open"),
    *("smtplib.connect", "ftplib.connect", "pty.spawn", "sqlite3.connect"),
}


def order(only=""):
    """Return the formats in the order of cases, repeated by their share.

    only: text in the names of the requested formats.
    """
    names = [form.name for form in FORMATS for _ in range(form.share)]
    names = [name for name in names if only in name]
    seeded("order").shuffle(names)
    return names


def is_clear(message):
    """Return whether a message is readable, also on a terminal."""
    return 0 < len(message) < 4000 and all(
        c.isprintable() or c == "\n" for c in message
    )


class Watch:
    """Record forbidden actions of files."""

    def __init__(self):
        self.actions = []
        self.folder = None
        self.allowed = (tempfile.gettempdir(), "/dev/", "/proc/", str(ROOT))
        sys.addaudithook(self.note)

    def note(self, event, arguments):
        if self.folder is None:
            return
        if event in FORBIDDEN or (
            event == "subprocess.Popen" and arguments[0] != sys.executable
        ):
            self.actions.append(f"{event} {arguments!r:.200}")
        elif event == "open" and isinstance(arguments[0], str):
            path, mode, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else 0
            if writes and not os.path.abspath(path).startswith(self.allowed):
                self.actions.append(f"writes {path}")


def peak():
    """Return (bytes in memory now, the peak since `forget_peak`)."""
    current = int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * 4096
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM"):
            return current, int(line.split()[1]) * 1024
    return current, current


@cache
def patience():
    """Return the time limit of a case in seconds of all processors."""
    began = time.process_time()
    for _ in range(1_000_000):
        pass
    return SECONDS * max(1, (time.process_time() - began) / LOOP)


def forget_peak():
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "utf-8")


def judge(read, path, good, differs):
    """Return the outcome of one file: "equal", "error", "differs", or the failure."""
    before, _ = peak()
    forget_peak()
    signal.setitimer(signal.ITIMER_PROF, patience())
    result = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(io.StringIO()):
                result = digest(read(path))
        outcome = "equal" if result == good else "differs"
        if outcome == "differs" and differs is None:
            outcome = "lost: read as something else without a word"
    except ToolkitError as error:
        outcome = "error"
        if not is_clear(str(error)):
            outcome = f"unclear: {str(error)!r:.500}"
        if isinstance(error.__cause__, MemoryError):
            outcome = f"memory: {error!r:.300}"
    except MemoryError:
        outcome = f"memory: {traceback.format_exc()[-1500:]}"
    except AssertionError as error:
        outcome = f"unclear: {error}"
    except Exception:
        outcome = f"unclear: {traceback.format_exc()[-1500:]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    growth = peak()[1] - before
    if growth > GROWTH:
        outcome = f"memory: {growth >> 20} MB for {path.name}; {outcome}"
    return outcome


class Cases:
    """The cases of a seed: number -> a corrupt file of some format."""

    def __init__(self, seed, folder):
        self.seed, self.order = seed, order()
        self.folder, self.good = Path(folder), {}
        # The first large operation loads the code generator, in whichever case it runs.
        ops.matmul(*2 * [ops.ones((512, 512))])
        self.watch = Watch()

    def prepare_path(self, form):
        where = self.folder / "case"
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        return where / form.file

    def original(self, form):
        """Return name -> bytes of the files of a valid save, and its content."""
        if form.name not in self.good:
            path = self.prepare_path(form)
            form.make(path)
            files = {
                str(p.relative_to(path.parent)): p.read_bytes()
                for p in path.parent.rglob("*")
                if p.is_file()
            }
            for _ in range(2):  # cached values are computed
                content = digest(form.read(path))
                self.write(path, files)
            assert digest(form.read(path)) == content, form.name
            self.good[form.name] = files, content
        return self.good[form.name]

    def write(self, path, files):
        for name, data in files.items():
            target = path.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    def run(self, number):
        """Return (format, outcome) of a case."""
        form = BY_NAME[self.order[number % len(self.order)]]
        files, good = self.original(form)
        chance = seeded(self.seed, number)
        names = sorted(files)
        hit = form.file if form.file in files else chance.choice(names)
        if len(names) > 1:
            hit = chance.choice(names)
        path = self.prepare_path(form)
        change = form.change if hit == form.file else BY_NAME["keras"].change
        self.write(path, {**files, hit: change(files[hit], chance)})
        self.watch.actions, self.watch.folder = [], path.parent
        outcome = judge(form.read, path, good, form.differs)
        self.watch.folder = None
        if self.watch.actions:
            outcome = f"code: {self.watch.actions}"
        return form.name, outcome

    def keep(self, number, folder):
        """Keep the files of a case for inspection."""
        target = Path(folder, str(number))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder / "case", target)


def limit_space():
    size = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * 4096
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size + SPACE, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_attack(name, cases):
    """Return the outcome of an attack."""
    from tests.faults.attacks import ATTACKS, HARMLESS, SECRET

    folder = cases.folder / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "secret.txt").write_text(SECRET)
    os.chdir(folder)
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = ATTACKS[name](folder)
    cases.watch.actions, cases.watch.folder = [], folder
    differs = "it may be read" if name in HARMLESS else None
    outcome = judge(lambda path: results.append(read()), folder, None, differs)
    cases.watch.folder = None
    text = repr(results)
    if cases.watch.actions or (folder / "ran").exists():
        return f"code: {cases.watch.actions}"
    if SECRET in text or "root:x" in text:
        return f"code: it read {text:.300}"
    if (folder.parent / "evil").exists() or Path("/tmp/evil").exists():
        return "code: it wrote out of its folder"
    return "done: it was read" if outcome.startswith("lost") else outcome


def check_huge_numbers(label, make, cases, seed):
    """Return the first wrong outcome of configs that each have a huge number."""
    folder = cases.prepare_path(BY_NAME["keras"]).parent
    chance, outcome = seeded(seed, label), "error"
    for description, read in huge_numbers.hostile_configs(label, make, chance, folder):
        outcome = judge(lambda _, read=read: read() and None, folder, None, "read")
        if outcome not in ("error", "differs", "equal"):
            return f"{outcome}; {description}"
    return "error"


def numbered(words, cases):
    """Yield the number, name and outcome of each requested case."""
    if words[0] == "attacks":
        from tests.faults.attacks import ATTACKS

        names = list(ATTACKS)
        numbers = range(*map(int, words[1:3]))
        return numbers, lambda n: (names[n], run_attack(names[n], cases))
    if words[0].startswith("numbers"):
        samples = list(huge_numbers.samples().items())
        numbers = range(*map(int, words[1:3]))
        return numbers, lambda n: (
            samples[n][0],
            check_huge_numbers(*samples[n], cases, words[0]),
        )
    seed, _, only = words[0].partition("/")
    cases.seed, cases.order = int(seed), order(only)
    for name in sorted(set(cases.order)):
        cases.original(BY_NAME[name])
    return range(*map(int, words[1:3])), cases.run


def main():
    *words, folder = sys.argv[1:]
    cases = Cases(0, folder)
    numbers, run = numbered(words, cases)
    limit_space()
    # A config without a file may grow to the memory limit of a case.
    saving.set_load_budget(share=GROWTH / 2 / _memory_limit())
    progress = os.open(Path(folder, "progress"), os.O_RDWR | os.O_CREAT)
    for number in numbers:
        os.pwrite(progress, number.to_bytes(8, "little"), 0)
        name, outcome = run(number)
        if outcome not in ("equal", "error", "differs"):
            cases.keep(number, folder)
        print(json.dumps([number, name, outcome]), flush=True)


if __name__ == "__main__":
    main()
