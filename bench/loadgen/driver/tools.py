"""The load generators: how each is called, and how its output is read.

A new one is a class here and a line in `ALL`. Latencies are in seconds.
"""

import csv
import io
import json
import math
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from .hdr import Histogram
from .process import Trouble, output_of

SHARES = {"p50": 0.5, "p98": 0.98, "p99": 0.99, "p99.9": 0.999}


@dataclass
class Scene:
    """One load to offer."""

    kind: str  # closed, fresh (a new connection per request), open, http2, grpc
    port: int
    connections: int = 64
    seconds: float | None = None
    requests: int | None = None
    rate: float | None = None
    poisson: bool = False
    streams: int = 1
    seed: int = 1
    workers: int = 1  # processes that offer it together
    latencies: bool = False  # whether p98 and p99.9 are wanted, at the cost of more output

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"


class Unsupported(Exception):
    """The tool cannot offer this load; says why."""


class Tool:
    name = ""
    program = ""

    def __init__(self, bench, path):
        self.bench, self.path = bench, path

    def version(self):
        return ""

    def command(self, scene):
        """The words of the command line. Raises Unsupported."""
        raise NotImplementedError

    def read(self, finished, scene):
        """completed, errors, and quantiles by name (see SHARES) with max."""
        raise NotImplementedError

    def refuse(self, scene, *kinds):
        if scene.kind not in kinds or scene.poisson:
            raise Unsupported("does not offer this load")


def seconds_of(scene):
    if scene.seconds is None:
        raise Unsupported("measured by time only")
    return scene.seconds


def quantiles_of(samples):
    """Exact quantiles of a list."""
    ordered = sorted(samples)
    if not ordered:
        return {}

    def at(share):
        rank = math.ceil(share * len(ordered) - 1e-9)
        return ordered[min(max(rank, 1), len(ordered)) - 1]

    return {name: at(share) for name, share in SHARES.items()} | {"max": ordered[-1]}


def last_json(text):
    """The JSON document in a text that may have lines before it."""
    begin = text.find("{")
    if begin < 0:
        raise Trouble("no JSON in its output")
    return json.JSONDecoder().raw_decode(text[begin:])[0]


def ns(document, names):
    """Fields in nanoseconds, where they are, in seconds."""
    return {to: document[of] / 1e9 for to, of in names.items() if document.get(of) is not None}


class FloorClosed(Tool):
    name = "floor (epoll)"

    def command(self, scene):
        self.refuse(scene, "closed")
        words = [self.path, "floor-closed", f"127.0.0.1:{scene.port}", "-c", scene.connections]
        if scene.requests:
            words += ["-n", scene.requests]
        if scene.seconds:
            words += ["-z", scene.seconds]
        return words

    def read(self, finished, scene):
        found = last_json(finished.stdout)
        names = {"p50": "p50_ns", "p98": "p98_ns", "p99": "p99_ns", "p99.9": "p999_ns"}
        return {"completed": found["completed"], "errors": 0} | ns(
            found, names | {"max": "max_ns"}
        )


class FloorUring(FloorClosed):
    name = "floor (io_uring)"

    def command(self, scene):
        if not self.bench.uring:
            raise Unsupported("no io_uring here")
        return [*super().command(scene), "--uring"]


class FloorOpen(FloorClosed):
    name = "floor (sleep and spin)"

    def command(self, scene):
        self.refuse(scene, "open")
        target = f"127.0.0.1:{scene.port}"
        return [
            *(self.path, "floor-open", target, "-c", scene.connections),
            *("-q", scene.rate, "-z", seconds_of(scene)),
        ]


class Meshtax(Tool):
    name = "meshtax"

    def version(self):
        return (output_of([self.path, "--version"]) or "").strip()

    def has(self, flag):
        if not hasattr(self, "help"):
            self.help = output_of([self.path, "load", "--help"]) or ""
        return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", self.help) is not None

    def need(self, flag):
        if not self.has(flag):
            raise Unsupported(f"has no {flag} yet")
        return flag

    def command(self, scene):
        words = [self.path, "load", scene.url, "-c", scene.connections, "--warmup", "0s", "--json"]
        words += ["--core", self.bench.load_core]
        if scene.requests:
            words += [self.need("--count"), scene.requests]
        words += ["-z", f"{scene.seconds or 600:g}s"]
        if scene.rate:
            arrivals = "poisson" if scene.poisson else "constant"
            words += ["-q", scene.rate, "--arrivals", arrivals, "--seed", scene.seed]
        if scene.workers > 1:
            words += [self.need("--workers"), scene.workers]
        if scene.kind == "fresh":
            words += [self.need("--disable-keepalive")]
        if scene.kind == "http2":
            words += [self.need("--http2"), self.need("--streams"), scene.streams]
        if scene.kind == "grpc":
            words += [self.need("--grpc"), GRPC_METHOD, self.need("--streams"), scene.streams]
        return words

    def read(self, finished, scene):
        found = last_json(finished.stdout)
        result = found["result"]
        response = Histogram(result["response"])
        at = {name: response.at(share) for name, share in SHARES.items()} | {"max": response.max()}
        return {
            "completed": result["completed"],
            "errors": total(result.get("errors", 0)) + result.get("unanswered", 0),
            "verdict": (result.get("audit") or {}).get("generator_bound"),
        } | {name: value / 1e9 for name, value in at.items() if value is not None}


GRPC_METHOD = "/bench.Echo/Unary"


def total(counts):
    """The sum of all whole numbers in a nested document."""
    if isinstance(counts, dict):
        return sum(total(value) for value in counts.values())
    if isinstance(counts, list):
        return sum(total(value) for value in counts)
    return counts if isinstance(counts, int) and not isinstance(counts, bool) else 0


class Wrk(Tool):
    name = program = "wrk"

    def version(self):
        return package_version("wrk")

    def command(self, scene):
        self.refuse(scene, "closed", "fresh")
        words = [self.path, "-t1", f"-c{scene.connections}", f"-d{seconds_of(scene):g}s"]
        if scene.kind == "fresh":
            words += ["-H", "Connection: close"]
        return [*words, "--latency", scene.url]

    def read(self, finished, scene):
        text = finished.stdout
        # "Socket errors: connect 0, read 1, write 0, timeout 0", if there are any.
        errors = re.search(r"Socket errors: (.*)", text)
        found = {
            "completed": int(need(r"(\d+) requests in", text)),
            "errors": sum(map(int, re.findall(r"\d+", errors.group(1)))) if errors else 0,
        }
        for name, label in (("p50", "50%"), ("p99", "99%")):
            found[name] = duration(need(rf"^\s+{label}\s+(\S+)$", text))
        return found


class H2load(Tool):
    name = program = "h2load"

    def version(self):
        return package_version("nghttp2-client")

    def command(self, scene):
        if scene.kind == "fresh" or scene.poisson:
            raise Unsupported("does not offer this load")
        self.log = None
        words = [self.path, "-t1", "-c", scene.connections]
        if scene.requests:
            words += ["-n", scene.requests]
        else:
            words += ["-D", f"{seconds_of(scene):g}"]
        if scene.kind in ("closed", "open"):
            words += ["--h1"]
        else:
            words += ["-m", scene.streams]
        if scene.kind == "open":
            words += [f"--rps={scene.rate / scene.connections:g}"]
            self.log = self.bench.path(".tsv")
            self.log.unlink()
            words += [f"--log-file={self.log}"]
        url = scene.url
        if scene.kind == "grpc":
            message = self.bench.path(".grpc")
            message.write_bytes(b"\0\0\0\0\0")
            words += ["-d", message, "-H", "content-type: application/grpc", "-H", "te: trailers"]
            url = scene.url.rstrip("/") + GRPC_METHOD
        return [*words, url]

    def read(self, finished, scene):
        found = {
            "completed": int(need(r"requests: .* (\d+) succeeded", finished.stdout)),
            "errors": int(need(r"requests: .* (\d+) failed", finished.stdout)),
        }
        if self.log and self.log.exists():
            with open(self.log, encoding="ascii") as lines:
                found |= quantiles_of([int(line.split("\t")[2]) / 1e6 for line in lines])
        else:
            found["max"] = duration(need(r"time for request:\s+\S+\s+(\S+)", finished.stdout))
        return found


class Hey(Tool):
    name = program = "hey"

    def version(self):
        return package_version("hey")

    def command(self, scene):
        self.refuse(scene, "closed", "fresh", "open")
        words = [self.path, "-c", scene.connections, "-z", f"{seconds_of(scene):g}s"]
        if scene.kind == "fresh":
            words += ["-disable-keepalive"]
        if scene.kind == "open":
            words += ["-q", f"{scene.rate / scene.connections:g}"]
        if scene.latencies:
            words += ["-o", "csv"]
        return [*words, scene.url]

    def read(self, finished, scene):
        if scene.latencies:
            rows = list(csv.DictReader(io.StringIO(finished.stdout)))
            good = [float(row["response-time"]) for row in rows if row["status-code"] == "200"]
            return {"completed": len(good), "errors": len(rows) - len(good)} | quantiles_of(good)
        text = finished.stdout
        good, _, bad = text.partition("Error distribution")
        found = {
            "completed": int(need(r"\[200\]\s+(\d+) responses", good)),
            "errors": sum(map(int, re.findall(r"^\s+\[(\d+)\]", bad, re.M))),
        }
        for name, label in (("p50", "50%"), ("p99", "99%")):
            found[name] = float(need(rf"^\s+{label} in (\S+) secs", text))
        return found


class Oha(Tool):
    name = program = "oha"
    correct = True  # with --latency-correction in an open loop

    def version(self):
        return (output_of([self.path, "--version"]) or "").strip().removeprefix("oha ")

    def command(self, scene):
        self.refuse(scene, "closed", "fresh", "open", "http2")
        words = [self.path, "--no-tui", "--output-format", "json", "-c", scene.connections]
        words += ["-n", scene.requests] if scene.requests else ["-z", f"{seconds_of(scene):g}s"]
        if scene.kind == "fresh":
            words += ["--disable-keepalive"]
        if scene.kind == "open":
            words += ["-q", f"{scene.rate:g}"]
            words += ["--latency-correction"] if self.correct else []
        if scene.kind == "http2":
            words += ["--http2", "-p", scene.streams]
        return [*words, scene.url]

    def read(self, finished, scene):
        found = last_json(finished.stdout)
        # At the end of its time it drops what is under way: not an error of the server.
        errors = {
            why: count
            for why, count in (found.get("errorDistribution") or {}).items()
            if "deadline" not in why
        }
        at = found.get("latencyPercentiles") or {}
        quantiles = {name: at[name] for name in SHARES if at.get(name) is not None}
        return {
            "completed": sum((found.get("statusCodeDistribution") or {}).values()),
            "errors": sum(errors.values()),
            "max": (found.get("summary") or {}).get("slowest"),
        } | quantiles


class OhaPlain(Oha):
    name = "oha (plain)"
    correct = False

    def command(self, scene):
        self.refuse(scene, "open")
        return super().command(scene)


class Fortio(Tool):
    name = program = "fortio"
    extra = ()

    def version(self):
        return (output_of([self.path, "version"]) or "").strip()

    def command(self, scene):
        self.refuse(scene, "closed", "fresh", "open")
        return [
            *(self.path, "load", "-json", "-", "-loglevel", "error", "-c", scene.connections),
            *("-qps", f"{scene.rate or 0:g}", "-t", f"{seconds_of(scene):g}s", "-r", "0.00001"),
            *("-p", "50,98,99,99.9", *self.extra),
            *(("-keepalive=false",) if scene.kind == "fresh" else ()),
            scene.url,
        ]

    def read(self, finished, scene):
        found = last_json(finished.stdout)
        codes = found.get("RetCodes") or {}
        histogram = found["DurationHistogram"]
        at = {f"p{p['Percentile']:g}": p["Value"] for p in histogram.get("Percentiles") or ()}
        return {
            "completed": codes.get("200", 0),
            "errors": sum(codes.values()) - codes.get("200", 0),
            "max": histogram["Max"],
        } | at


class FortioEven(Fortio):
    name = "fortio -uniform -nocatchup"
    extra = ("-uniform", "-nocatchup")

    def command(self, scene):
        self.refuse(scene, "open")
        return super().command(scene)


class Vegeta(Tool):
    name = program = "vegeta"

    def version(self):
        return go_version(self.path)

    def command(self, scene):
        self.refuse(scene, "closed", "fresh", "open")
        targets = self.bench.path(".targets")
        targets.write_text(f"GET {scene.url}\n")
        self.results = self.bench.path(".vegeta")
        words = [self.path, "attack", f"-targets={targets}", f"-output={self.results}"]
        words += [f"-duration={seconds_of(scene):g}s"]
        if scene.kind == "open":
            words += [f"-rate={scene.rate:g}/1s", *self.workers(scene)]
        else:
            words += ["-rate=0", f"-max-workers={scene.connections}"]
        if scene.kind == "fresh":
            words += ["-keepalive=false"]
        return words

    def workers(self, scene):
        return ()

    def read(self, finished, scene):
        if scene.latencies:
            rows = output_of([self.path, "encode", "-to=csv", self.results]) or ""
            rows = [row for row in csv.reader(io.StringIO(rows))]
            good = [int(row[2]) / 1e9 for row in rows if row[1] == "200"]
            return {"completed": len(good), "errors": len(rows) - len(good)} | quantiles_of(good)
        text = output_of([self.path, "report", "-type=json", self.results], timeout=120)
        found = last_json(text or "")
        good = (found.get("status_codes") or {}).get("200", 0)
        names = {"p50": "50th", "p99": "99th", "max": "max"}
        return {"completed": good, "errors": found["requests"] - good} | ns(
            found["latencies"], names
        )


class VegetaFew(Vegeta):
    name = "vegeta (64 workers)"

    def command(self, scene):
        self.refuse(scene, "open")
        return super().command(scene)

    def workers(self, scene):
        return (f"-workers={scene.connections}", f"-max-workers={scene.connections}")


class K6(Tool):
    name = program = "k6"
    users = None

    def version(self):
        found = re.search(r"v(\d\S*)", output_of([self.path, "version"]) or "")
        return found.group(1) if found else ""

    def command(self, scene):
        self.refuse(scene, "closed", "fresh", "open")
        users = self.users or scene.connections
        seconds = f"{seconds_of(scene):g}s"
        if scene.kind == "open":
            how = {
                "executor": "constant-arrival-rate",
                "rate": int(scene.rate),
                "timeUnit": "1s",
                "preAllocatedVUs": users,
                "maxVUs": users,
            }
        else:
            how = {"executor": "constant-vus", "vus": users}
        options = {
            "discardResponseBodies": True,
            "noConnectionReuse": scene.kind == "fresh",
            "summaryTrendStats": ["p(50)", "p(98)", "p(99)", "p(99.9)", "max"],
            "scenarios": {"load": how | {"duration": seconds, "gracefulStop": "3s"}},
        }
        script = self.bench.path(".js")
        script.write_text(
            "import http from 'k6/http';\n"
            f"export const options = {json.dumps(options)};\n"
            f"export default function () {{ http.get({json.dumps(scene.url)}); }}\n"
        )
        self.summary = self.bench.path(".json")
        return [
            *(self.path, "run", "--quiet", "--no-usage-report", "--no-color"),
            *(f"--summary-export={self.summary}", script),
        ]

    def read(self, finished, scene):
        metrics = json.loads(self.summary.read_text())["metrics"]
        # `fails` of a rate that counts failures are the good ones.
        good = metrics["http_req_failed"].get("fails", metrics["http_reqs"]["count"])
        times = metrics["http_req_duration"]
        found = {"completed": good, "errors": metrics["http_reqs"]["count"] - good}
        found["dropped"] = metrics.get("dropped_iterations", {}).get("count", 0)
        for name in (*SHARES, "max"):
            value = times.get(name if name == "max" else f"p({name[1:]})")
            if value is not None:
                found[name] = value / 1e3
        return found


class K6Many(K6):
    name = "k6 (1000 users)"
    users = 1000

    def command(self, scene):
        self.refuse(scene, "open")
        return super().command(scene)


def need(pattern, text):
    found = re.search(pattern, text, re.M)
    if not found:
        raise Trouble(f"nothing like {pattern!r} in its output")
    return found.group(1)


def duration(text):
    """Seconds of '1.50ms'."""
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m|h)", text).groups()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}[unit]


def package_version(package):
    return (output_of(["dpkg-query", "-W", "-f", "${Version}", package]) or "").partition("-")[0]


def go_version(path):
    """The version of the main module that a Go program was built from."""
    lines = (output_of(["go", "version", "-m", path]) or "").splitlines()
    modules = [line.split() for line in lines if line.split()[:1] in (["mod"], ["dep"])]
    for words in modules:
        if words[1].split("/")[-1] == Path(path).name or f"/{Path(path).name}/" in words[1]:
            return words[2].removeprefix("v")
    return ""


ALL = (
    *(FloorClosed, FloorUring, FloorOpen, Meshtax, Wrk, H2load, Fortio, FortioEven, Oha, OhaPlain, Hey),
    *(Vegeta, VegetaFew, K6, K6Many),
)


def find(bench, cache):
    """The tools that are there, by name; and the programs that are not."""
    search = os.pathsep.join([str(cache / "bin"), os.environ.get("PATH", "")])
    found, missing = {}, []
    for kind in ALL:
        if issubclass(kind, FloorClosed):
            path = bench.helper
        elif kind is Meshtax:
            path = bench.meshtax
        else:
            path = shutil.which(kind.program, path=search)
        if path:
            found[kind.name] = kind(bench, Path(path))
        elif kind.program not in missing:
            missing.append(kind.program)
    return found, missing
