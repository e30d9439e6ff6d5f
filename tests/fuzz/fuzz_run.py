"""Read changed files, in child processes with limits of time and memory, and count what becomes of them.

    python tests/fuzz/fuzz_run.py --count 100000

Each case is one of: read (the file was still valid), clean (the error of the project), crashed (any other exception, or
the end of the process), hung (more than 10 seconds), memory (more than 256 MiB, or a MemoryError on the way), ran code
(a process was started, a connection made, or something written outside the case's directory). The last four must be 0.
A case is repeated by its reader and its number: ``--only READER --case N``.
"""

import argparse
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.dont_write_bytecode = True

KINDS = ("read", "clean", "crashed", "hung", "memory", "ran code")
SECONDS = 10  # of a case
STUCK = 30  # seconds after which a case that no signal ends has its process ended
MEMORY = 2**28  # bytes that a case may add to what the process has
SPACE = 2**32  # bytes of addresses that a process may add to what its imports take
PART = 10_000  # cases of a child process
STARTED = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.connect",
    "pty.spawn",
    "os.spawn",
}
CHANGED = {"os.mkdir", "os.rename", "os.remove", "os.symlink", "os.link", "os.rmdir", "os.truncate"}


class Hung(BaseException):
    """A case has taken too long."""


class Watch:
    """Notes what a case starts, or changes outside its directory."""

    def __init__(self):
        self.root, self.seen = None, None
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.root is None:
            return
        if event in STARTED:
            self.seen = f"{event} {arguments[:1]}"
        elif event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int):
            if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not self._inside(arguments[0]):
                self.seen = f"writes {arguments[0]}"
        elif event in CHANGED and isinstance(arguments[0], str | os.PathLike) and not self._inside(arguments[0]):
            self.seen = f"{event} {arguments[0]}"

    def _inside(self, path):
        text = os.fspath(path)
        return not text.startswith(os.sep) or text.startswith((self.root, os.devnull))


def content_of(reader, number):
    """The content of a case: an attack, then changes of the seeds."""
    from fuzz_mutations import mutated

    attacks, seeds = reader.hostile(), reader.contents()
    if number < len(seeds):
        return seeds[number]  # valid as it is
    if number < len(seeds) + len(attacks):
        return attacks[number - len(seeds)]
    rng = random.Random(f"{reader.name}:{number}")
    return mutated(rng, rng.choice(seeds), [*seeds, *(a for a in attacks if len(a) < 2**16)], reader.words)


def classified(reader, root, content, watch):
    """What becomes of a case, and a note on it."""
    reader.put(root, content)
    if memory("VmHWM") > memory("VmRSS") + MEMORY // 4:
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins here; this takes milliseconds
    before, note, kind = memory("VmRSS"), "", "read"
    watch.root, watch.seen = str(root), None
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(STUCK, exit=True, file=sys.__stderr__)
    try:
        reader.read(root)
    except Hung:
        kind = "hung"
    except Exception as error:
        kind = "clean" if isinstance(error, reader.clean) else "crashed"
        note = f"{type(error).__name__}: {str(error)[:300]}"
        if kind == "clean" and (len(str(error)) > 5000 or not str(error)):
            kind, note = "crashed", f"a message of {len(str(error))} characters"
        while error is not None:
            kind = "memory" if isinstance(error, MemoryError) else kind
            error = error.__cause__ or error.__context__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        watch.root = None
    peak = memory("VmHWM") - before
    if watch.seen:
        return "ran code", watch.seen
    if peak > MEMORY:
        return "memory", f"{peak / 2**20:.0f} MiB"
    return kind, note


def memory(field):
    """Bytes of a field of the process's status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def child(work, out, only_bad=True):
    """Carry out cases, a list of reader, first and number; print those that are no answer, and note the present one."""
    import torch  # before the limit on addresses: what is measured are the cases
    from fuzz_readers import READERS

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="fedbench-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.environ["FEDBENCH_OFFLINE"] = "1"
    watch, counts, progress = Watch(), {name: Counter() for name, _, _ in work}, Path(out)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(Hung()))
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (to the end)
    try:
        for name, first, count in work:
            reader = next(r for r in READERS if r.name == name)
            warm_up(reader, folder / "case")
            resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + SPACE, resource.RLIM_INFINITY))
            for number in range(first, first + count):
                progress.write_text(json.dumps({"at": number, "counts": counts}))
                (folder / "case").mkdir()
                kind, note = classified(reader, folder / "case", content_of(reader, number), watch)
                counts[name][kind] += 1
                if kind not in ("read", "clean") or not only_bad:
                    print(json.dumps([name, number, kind, note]), file=sys.__stdout__, flush=True)
                shutil.rmtree(folder / "case", ignore_errors=True)
        progress.write_text(json.dumps({"at": None, "counts": counts}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def warm_up(reader, root):
    """Read the valid files: this imports whatever the reader needs."""
    for valid in reader.contents():
        root.mkdir()
        reader.put(root, valid)
        with suppress(reader.clean):
            reader.read(root)
        shutil.rmtree(root)


def carried_out(name, first, count, bad):
    """The counts of some cases, in as many processes as the ends of processes make necessary."""
    counts = Counter()
    while count:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, __file__, "--child", json.dumps([[name, first, count]]), file.name]
            done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
            text = Path(file.name).read_text()
        if not text:
            raise RuntimeError(f"{name}: the valid files cannot be read\n{done.stderr}")
        state = json.loads(text)
        counts.update(state["counts"][name])
        bad += [json.loads(line) for line in done.stdout.splitlines()]
        if state["at"] is None:
            return counts
        kind = "hung" if "Timeout" in done.stderr else "crashed"
        counts[kind] += 1
        bad.append([name, state["at"], kind, f"the process ended with {done.returncode}: {done.stderr[-300:]}"])
        count, first = first + count - state["at"] - 1, state["at"] + 1
    return counts


def run(count, only=None, report=print, jobs=1):
    """Carry out ``count`` cases, or those of one reader, and return the counts per reader and the bad cases."""
    from fuzz_readers import READERS

    readers = [r for r in READERS if only in (None, r.name)]
    total = sum(r.share for r in readers)
    table, bad, start = {}, [], time.monotonic()
    width = max(len(r.name) for r in readers)
    report(f"{'reader':<{width}}" + "".join(f"{kind:>10}" for kind in ("cases", *KINDS)))

    def counts_of(reader):
        least = len(reader.contents()) + len(reader.hostile())
        cases = max(least, round(count * reader.share / total))
        parts = (carried_out(reader.name, n, min(PART, cases - n), bad) for n in range(0, cases, PART))
        return sum(parts, Counter())

    with ThreadPoolExecutor(jobs) as pool:
        for reader, counts in zip(readers, pool.map(counts_of, readers), strict=True):
            table[reader.name] = counts
            report(row(reader.name, counts, width))
    whole = sum(table.values(), Counter())
    report(row("all", whole, width))
    report(f"{time.monotonic() - start:.0f} s")
    for entry in bad:
        report(json.dumps(entry))
    return table, bad


def row(name, counts, width):
    """A line of the table."""
    return f"{name:<{width}}" + "".join(f"{n:>10}" for n in (counts.total(), *(counts[k] for k in KINDS)))


def main():
    """The command line."""
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]), sys.argv[3])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--only", metavar="READER")
    parser.add_argument("--jobs", type=int, default=1, help="readers at a time")
    parser.add_argument("--case", type=int, help="carry out one case of --only and print it")
    asked = parser.parse_args()
    if asked.case is not None:
        child([[asked.only, asked.case, 1]], os.devnull, only_bad=False)
        return 0
    _, bad = run(asked.count, asked.only, lambda text: print(text, flush=True), asked.jobs)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
