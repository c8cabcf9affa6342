"""Starting, measuring, stalling and ending processes."""

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path


class Trouble(Exception):
    """Something went wrong that is said to the user in one line."""


@dataclass
class Bench:
    """What every run needs."""

    helper: Path  # the binary with the floors, the recorder, the analysis and `measure`
    scratch: Path  # a directory for files of a run
    server_core: int
    load_core: int
    tools: dict = field(default_factory=dict)  # name -> Tool that is there
    missing: dict = field(default_factory=dict)  # name -> why it is not
    uring: bool = False  # whether this kernel lets us use io_uring
    nginx: Path | None = None
    nghttpd: Path | None = None
    meshtax: Path | None = None

    def path(self, suffix):
        """A fresh file name."""
        handle, path = tempfile.mkstemp(suffix=suffix, dir=self.scratch)
        os.close(handle)
        return Path(path)


@dataclass
class Finished:
    """A program that has ended, and what the kernel counted for it."""

    exit: int
    stdout: str
    stderr: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    preempted: int
    foreign_cores: float  # cores that neither it nor the server kept busy
    steal_cores: float
    stall_s: float | None = None

    def counted(self):
        return {
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "peak_mb": self.peak_mb,
            "preempted": self.preempted,
            "foreign_cores": self.foreign_cores,
            "steal_cores": self.steal_cores,
        }


class Measured:
    """A program under `measure`: a small parent of its own, since a peak of memory is inherited."""

    def __init__(self, bench, core, argv, *, stdin=subprocess.DEVNULL, cwd=None):
        self.report = bench.path(".measure")
        self.output = bench.path(".out")
        self.errors = bench.path(".err")
        command = [bench.helper, "measure", "--report", self.report, "--core", core, "--", *argv]
        with open(self.output, "wb") as output, open(self.errors, "wb") as errors:
            self.parent = subprocess.Popen(
                [str(word) for word in command],
                stdin=stdin,
                stdout=output,
                stderr=errors,
                cwd=cwd,
                start_new_session=True,
            )

    def lines(self):
        text = self.report.read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def pid(self):
        """The program's own id, once it is started."""
        for _ in range(2000):
            if lines := self.lines():
                return lines[0]["pid"]
            if self.parent.poll() is not None:
                break
            time.sleep(0.001)
        raise Trouble(f"did not start: {self.errors.read_text().strip()}")

    def cpu_s(self):
        """CPU time until now, of all its threads; ten milliseconds at best."""
        try:
            words = Path(f"/proc/{self.pid()}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def wait(self, timeout_s):
        # Not `Popen.wait` with a timeout: that looks twenty times a second, on cores that measure.
        handle = os.pidfd_open(self.parent.pid)
        try:
            ended, _, _ = select.select([handle], [], [], timeout_s)
        finally:
            os.close(handle)
        if not ended:
            self.end()
            raise Trouble(f"did not end within {timeout_s:.0f} s")
        self.parent.wait()
        lines = self.lines()
        if len(lines) < 2:
            raise Trouble(f"no measurement: {self.errors.read_text().strip()}")
        return lines[1]

    def end(self):
        """Ends it and its parent, whatever they do."""
        if self.parent.poll() is None:
            try:
                os.killpg(self.parent.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.parent.wait()


def machine_s():
    """CPU seconds of all cores so far: busy, stolen by the hypervisor."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _io, irq, soft, steal = (int(word) for word in words[:8])
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + soft) / tick, steal / tick


def run(bench, argv, *, server=None, timeout_s, stall=None, cwd=None, beside=()):
    """Runs a generator to its end. `stall`: (process id or None for its own, after, for) seconds."""
    server_before = server.cpu_s() if server else 0.0
    own_before = time.process_time()
    (busy_before, steal_before), began = machine_s(), time.monotonic()
    program = Measured(bench, bench.load_core, argv, cwd=cwd)
    others = [Measured(bench, bench.load_core, words, cwd=cwd) for words in beside]
    stalled = None
    try:
        if stall:
            pid, after_s, for_s = stall
            stalled = hold(pid or program.pid(), began + after_s, for_s)
        counts = program.wait(timeout_s)
        rest = [other.wait(timeout_s) for other in others]
    finally:
        for each in (program, *others):
            each.end()
    wall_s = time.monotonic() - began
    busy, steal = machine_s()
    cpu_s = sum(c["user_s"] + c["system_s"] for c in (counts, *rest))
    served_s = server.cpu_s() - server_before if server else 0.0
    known_s = cpu_s + served_s + time.process_time() - own_before
    return Finished(
        exit=max(c["exit"] for c in (counts, *rest)),
        stdout=program.output.read_text(errors="replace"),
        stderr=program.errors.read_text(errors="replace"),
        wall_s=wall_s,
        cpu_s=cpu_s,
        peak_mb=max(c["peak_kib"] for c in (counts, *rest)) * 1024 / 1e6,
        preempted=counts["preempted"],
        foreign_cores=max(0.0, (busy - busy_before - known_s) / wall_s),
        steal_cores=(steal - steal_before) / wall_s,
        stall_s=stalled,
    )


def hold(pid, at, for_s):
    """Stops a process at an instant and lets it go on later; for how long it really stood."""
    time.sleep(max(0.0, at - time.monotonic()))
    os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        time.sleep(for_s)
    finally:
        os.kill(pid, signal.SIGCONT)
    return time.monotonic() - begin


class Server:
    """A server on its core. Use it in a `with`."""

    def __init__(self, bench, argv, port=None, cwd=None):
        self.bench, self.argv, self.port, self.cwd = bench, argv, port, cwd
        self.counts = {}
        self.result = {}

    def __enter__(self):
        # Its standard input is a pipe that is never written: a recorder ends when we do.
        reads, self.lifeline = os.pipe()
        self.program = Measured(
            self.bench, self.bench.server_core, self.argv, stdin=reads, cwd=self.cwd
        )
        os.close(reads)
        try:
            self.pid = self.program.pid()
            self.port = self.port or self.announced()
            answers(self.port, self.program)
        except BaseException:
            self.__exit__()
            raise
        return self

    def announced(self):
        """The port that a recorder says it listens on."""
        for _ in range(2000):
            if text := self.program.output.read_text().strip():
                return int(json.loads(text.splitlines()[0])["listening"].rpartition(":")[2])
            if self.program.parent.poll() is not None:
                break
            time.sleep(0.002)
        raise Trouble(f"no server: {self.program.errors.read_text().strip()}")

    def cpu_s(self):
        return self.program.cpu_s()

    def stop(self):
        """Ends it in good order, and reads what the kernel and it itself counted."""
        os.kill(self.pid, signal.SIGTERM)
        self.counts = self.program.wait(10)
        last = self.program.output.read_text().strip().splitlines()[-1:]
        self.result = json.loads(last[0]) if last and last[0].startswith("{") else {}
        return self.result

    def __exit__(self, *_):
        self.program.end()
        os.close(self.lifeline)


def answers(port, program):
    """Waits until somebody listens."""
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if program.parent.poll() is not None:
                break
            time.sleep(0.01)
    raise Trouble(f"no server: {program.errors.read_text().strip()}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def output_of(argv, **more):
    """What a short program prints; None when it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            capture_output=True,
            text=True,
            stdin=None if "input" in more else subprocess.DEVNULL,
            timeout=more.pop("timeout", 60),
            check=False,
            **more,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
