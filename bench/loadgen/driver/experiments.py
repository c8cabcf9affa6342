"""What is measured, and what of it must hold. Each experiment says which runs make a round."""

import json
from dataclasses import dataclass
from statistics import median

from . import servers
from .figures import Bound, Table, cell, count, millis, percent, ratio, significant
from .process import Trouble, output_of, run
from .tools import SHARES, Scene, Unsupported

OURS = "meshtax"
FLOOR_CLOSED = "floor (epoll)"
FLOOR_OPEN = "floor (sleep and spin)"


@dataclass
class Job:
    """One run of a round."""

    case: str
    tool: str
    measure: object  # a function of the round's number that returns the sample's fields
    near: bool = False  # one of those that a bound compares: they run next to each other
    rounds: int | None = None  # no more rounds than this


PEER_ROUNDS = "Tools without a bound ran in three of the rounds."


class Experiment:
    name = ""
    cases = ("",)
    # Rounds of those that no bound compares, where a run is long.
    peer_rounds = 3
    # How often those that a bound compares run in each round, by turns.
    turns = 1

    def __init__(self, bench, options):
        self.bench, self.options = bench, options

    def seconds(self, usual):
        if self.options.seconds:
            return self.options.seconds
        return min(usual, 2) if self.options.quick else usual

    def jobs(self):
        raise NotImplementedError

    def tables(self, samples):
        raise NotImplementedError

    def bounds(self, samples):
        return []

    def chosen(self, scene):
        """The tools that can offer this load."""
        for tool in self.bench.tools.values():
            if self.options.tools and tool.name not in self.options.tools:
                continue
            try:
                tool.command(scene)
            except Unsupported as why:
                if tool.name == OURS:
                    self.options.say(f"{self.name}: meshtax {why}")
                continue
            yield tool

    def offer(self, tool, scene, server, **more):
        """Runs a tool against a server and reads what it says."""
        argv = tool.command(scene)
        finished = run(self.bench, argv, server=server, timeout_s=limit_s(scene), **more)
        if finished.exit != 0:
            last = (finished.stderr.strip() or finished.stdout.strip()).splitlines()[-1:]
            raise Trouble(f"exit code {finished.exit}: {' '.join(last)[:200]}")
        return finished, tool.read(finished, scene)


def limit_s(scene):
    return (scene.seconds or 240.0) + 30.0


def peers_first(tools, key):
    """Rows in the order of a figure, those without one last."""
    return sorted(tools, key=lambda tool: key(tool) if key(tool) is not None else float("inf"))


def middle(values):
    return median(values.values()) if values else None


class ClosedLoop(Experiment):
    name = "closed"
    title = "Closed loop, HTTP/1.1, 64 connections, one core"
    kind, connections, fast = "closed", 64, True
    near = (OURS, FLOOR_CLOSED, "floor (io_uring)", "wrk")

    def jobs(self):
        scene = Scene(self.kind, 0, self.connections, seconds=self.seconds(5))
        for tool in self.chosen(scene):
            yield Job("", tool.name, self.measure(tool), near=tool.name in self.near)

    def measure(self, tool):
        def one(number):
            with servers.recorder(self.bench, fast=self.fast) as server:
                scene = Scene(self.kind, server.port, self.connections, self.seconds(5))
                finished, said = self.offer(tool, scene, server)
                served = server.stop()["requests"]
            # What the server counted, for every tool: none is taken at its word.
            return finished.counted() | {
                "said": said,
                "served": served,
                "requests_per_s": said["completed"] / scene.seconds,
                "cpu_s_per_100k": finished.cpu_s / served * 1e5,
                "requests_per_cpu_s": served / finished.cpu_s,
                "server_cores": server.counts and cpu_of(server.counts) / finished.wall_s,
            }

        return one

    def tables(self, samples):
        def cpu(tool):
            return middle(samples.of("", tool, "cpu_s_per_100k"))

        rows = []
        for tool in peers_first(samples.tools(""), cpu):
            if why := samples.failure("", tool):
                rows.append([tool, f"failed: {why}", "", "", ""])
                continue
            rows.append(
                [
                    named(tool),
                    cell(samples.of("", tool, "requests_per_s"), count),
                    cell(samples.of("", tool, "cpu_s_per_100k"), significant),
                    cell(samples.of("", tool, "peak_mb"), significant),
                    cell(samples.ratios("", OURS, tool, "cpu_s_per_100k"), ratio)
                    if tool != OURS
                    else "1",
                ]
            )
        header = ["tool", "requests/s", "CPU-seconds per 100,000 requests", "peak memory MB"]
        return [Table(self.title, [*header, "CPU of meshtax / its"], rows)]

    def bounds(self, samples):
        for other, limit in (("wrk", 0.70), (FLOOR_CLOSED, 1.15)):
            values = samples.ratios("", OURS, other, "cpu_s_per_100k")
            yield Bound(f"closed loop: CPU per request / that of {other}", values, limit)


class NewConnections(ClosedLoop):
    name = "new-connection"
    title = "A new connection per request, 32 at once"
    kind, connections, fast = "fresh", 32, False
    near = (OURS, "wrk", "oha", "fortio")

    def tables(self, samples):
        (table,) = super().tables(samples)
        table.header[3] = "requests per CPU-second"
        for row in table.rows:
            tool = row[0].strip("*")
            row[3] = cell(samples.of("", tool, "requests_per_cpu_s"), count) if row[3] else ""
        return [table]

    def bounds(self, samples):
        peers = [tool for tool in samples.tools("") if tool != OURS]
        peers = [tool for tool in peers if samples.of("", tool, "requests_per_cpu_s")]
        text = "new connection per request: requests per CPU-second / those of the best peer"
        if not peers:
            yield Bound(text, [], 1.0, at_least=True)
            return
        best = max(peers, key=lambda tool: middle(samples.of("", tool, "requests_per_cpu_s")))
        values = samples.ratios("", OURS, best, "requests_per_cpu_s")
        yield Bound(f"{text} ({best})", values, 1.0, at_least=True)


def cpu_of(counts):
    return counts["user_s"] + counts["system_s"]


def named(tool):
    return f"**{tool}**" if tool == OURS else tool


class OpenLoop(Experiment):
    name = "open"
    rates = {"1,000/s": 1000, "10,000/s": 10_000}
    cases = tuple(rates)
    # The p99 is of the machine's own pauses, which come in clusters: many short turns rather
    # than few long ones, so that they hit both sides alike.
    turns = 4
    usual_s = 3

    def jobs(self):
        for case, rate in self.rates.items():
            scene = Scene("open", 0, seconds=self.seconds(self.usual_s), rate=rate)
            for tool in self.chosen(scene):
                near = tool.name in (OURS, FLOOR_OPEN)
                rounds = None if near else self.peer_rounds
                yield Job(case, tool.name, self.measure(tool, rate), near=near, rounds=rounds)

    def measure(self, tool, rate):
        def one(number):
            seconds = self.seconds(self.usual_s)
            arrivals = self.bench.path(".arrivals")
            room = int(rate * seconds * 1.5) + 1000
            recorder = servers.recorder(self.bench, spin=True, capacity=room, out=arrivals)
            with recorder as server:
                scene = Scene("open", server.port, seconds=seconds, rate=rate, seed=number)
                finished, said = self.offer(tool, scene, server)
                served = server.stop()["requests"]
            seen = analysed(self.bench, [arrivals], rate, trim=seconds / 16)
            return finished.counted() | seen | {"said": said, "served": served} | said_own(said)

        return one

    def tables(self, samples):
        return [self.table(samples, case) for case in samples.cases()]

    def table(self, samples, case):
        def error(tool):
            return middle(samples.of(case, tool, "error_p99_us"))

        rows = []
        for tool in peers_first(samples.tools(case), error):
            if why := samples.failure(case, tool):
                rows.append([tool, f"failed: {why}", "", "", "", ""])
                continue
            own = (cell(samples.of(case, tool, f"own_{p}"), millis) for p in ("p50", "p99"))
            achieved = cell(samples.of(case, tool, "achieved_per_s"), lambda v: f"{v:,.0f}")
            lost = middle(samples.of(case, tool, "lost_share"))
            if lost and lost > 0.001:
                achieved += f", {percent(lost)} errors or dropped"
            rows.append(
                [
                    named(tool),
                    achieved,
                    cell(samples.of(case, tool, "burst_share"), lambda v: f"{v * 100:.1f} %"),
                    cell(samples.of(case, tool, "error_p99_us"), lambda v: significant(v / 1e3)),
                    cell(samples.of(case, tool, "error_p50_us"), lambda v: significant(v / 1e3)),
                    " / ".join(own),
                ]
            )
        header = ["tool", "achieved/s", "burst", "schedule error p99 ms", "its p50 ms"]
        return Table(
            f"Constant rate, {case}, 64 connections: what the server saw",
            [*header, "the tool's own p50 / p99 ms"],
            rows,
            [
                "*burst*: arrivals less than 20 % of the ideal gap after the one before. *schedule "
                "error*: distance from the ideal grid whose phase fits best.",
                PEER_ROUNDS,
            ],
        )

    def bounds(self, samples):
        for case in self.cases:
            values = samples.ratios(case, OURS, FLOOR_OPEN, "error_p99_us")
            yield Bound(f"open loop, {case}: schedule error p99 / the floor's", values, 1.25)
            mine = samples.of(case, OURS, "burst_share")
            floor = samples.of(case, FLOOR_OPEN, "burst_share")
            more = [(mine[r] - floor[r]) * 100 for r in mine if r in floor]
            yield Bound(f"open loop, {case}: burst above the floor's, in points", more, 2.0)


def analysed(bench, files, rate, trim, *more):
    words = [bench.helper, "analyse", *files, "--rate", rate, "--trim", trim, *more]
    text = output_of(words)
    if text is None:
        raise Trouble("too few requests arrived")
    return json.loads(text)


def said_own(said):
    """The tool's own figures, flat; and the share of requests that it lost."""
    own = {f"own_{name}": said.get(name) for name in (*SHARES, "max")}
    lost = said["errors"] + said.get("dropped", 0)
    return own | {"lost_share": lost / max(1, said["completed"] + lost)}


class Stalls(Experiment):
    name = "stall"
    cases = ("server", "generator")
    rate, stall_s, usual_s = 1000, 0.3, 10

    def jobs(self):
        scene = Scene("open", 0, seconds=self.usual_s, rate=self.rate, latencies=True)
        for case in self.cases:
            for tool in self.chosen(scene):
                near = tool.name in (OURS, FLOOR_OPEN)
                rounds = None if near else self.peer_rounds
                yield Job(case, tool.name, self.measure(tool, case), near=near, rounds=rounds)

    def measure(self, tool, case):
        def one(number):
            seconds = self.options.seconds or self.usual_s
            with servers.recorder(self.bench) as server:
                scene = Scene("open", server.port, seconds=seconds, rate=self.rate, seed=number)
                scene.latencies = True
                target = server.pid if case == "server" else None
                stall = (target, 0.4 * seconds, self.stall_s)
                finished, said = self.offer(tool, scene, server, stall=stall)
            sample = finished.counted() | {"said": said, "stall_s": finished.stall_s}
            for name, share in (*SHARES.items(), ("max", 1.0)):
                sample[f"own_{name}"] = said.get(name)
                # Of what was due while it stood, a request that was due u before its end waits u.
                truth = finished.stall_s - (1.0 - share) * seconds
                if truth > 0 and said.get(name) is not None:
                    sample[f"truth_{name}"] = truth
                    sample[f"ratio_{name}"] = said[name] / truth
            return sample

        return one

    def tables(self, samples):
        names = ("p98", "p99", "p99.9", "max")
        rows = []
        for case in samples.cases():
            truth = [cell(samples.of(case, OURS, f"truth_{n}"), self.write) for n in names]
            rows.append([f"**{case} stalled**: truth", *truth])
            for tool in peers_first(samples.tools(case), lambda t: self.distance(samples, case, t)):
                if why := samples.failure(case, tool):
                    rows.append([tool, f"failed: {why}", "", "", ""])
                    continue
                cells = [cell(samples.of(case, tool, f"own_{n}"), self.write) for n in names]
                rows.append([named(tool), *cells])
        return [
            Table(
                "One stall of 300 ms in a run of 10 s at 1,000/s",
                ["stalled process; reported percentiles (ms)", *names],
                rows,
                ["-: the tool has no such percentile.", PEER_ROUNDS],
            )
        ]

    def write(self, value):
        return significant(value * 1e3) if value < 0.01 else f"{value * 1e3:.0f}"

    def distance(self, samples, case, tool):
        ratios = [middle(samples.of(case, tool, f"ratio_{n}")) for n in ("p99", "max")]
        known = [abs(r - 1.0) for r in ratios if r is not None]
        return sum(known) / len(known) if known else None

    def bounds(self, samples):
        for case in self.cases:
            for name in ("p98", "p99", "p99.9", "max"):
                found = samples.of(case, OURS, f"ratio_{name}")
                # The median's distance, not the median of distances: sign matters.
                values = [abs(middle(found) - 1.0) * 100] if found else []
                text = f"stall of the {case}: {name}, distance from the truth in %"
                yield Bound(text, values, 5.0, digits=1, rounds=len(found))


class Poisson(Experiment):
    name = "poisson"
    # Workers are meshtax's own way of sharing a load; independent ones do not coordinate.
    shapes = {"one generator": (1, 1), "two workers": (2, 1), "two independent generators": (1, 2)}
    cases = tuple(shapes)
    rate, usual_s = 1000, 30

    def jobs(self):
        for case, (workers, generators) in self.shapes.items():
            scene = Scene("open", 0, seconds=1.0, rate=self.rate, poisson=True, workers=workers)
            for tool in self.chosen(scene):
                yield Job(case, tool.name, self.measure(tool, workers, generators))

    def measure(self, tool, workers, generators):
        def one(number):
            seconds = self.options.seconds or (10 if self.options.quick else self.usual_s)
            arrivals = self.bench.path(".arrivals")
            room = int(self.rate * seconds * 1.5) + 1000
            recorder = servers.recorder(self.bench, spin=True, capacity=room, out=arrivals)
            with recorder as server:
                scenes = [
                    Scene(
                        "open",
                        server.port,
                        connections=64 // generators,
                        seconds=seconds,
                        rate=self.rate / generators,
                        poisson=True,
                        workers=workers,
                        seed=self.options.seed * 1000 + number * 10 + each,
                    )
                    for each in range(generators)
                ]
                beside = [tool.command(scene) for scene in scenes[1:]]
                finished, _said = self.offer(tool, scenes[0], server, beside=beside)
                served = server.stop()["requests"]
            trim = min(1.0, seconds / 8)
            seen = analysed(self.bench, [arrivals], self.rate, trim, "--poisson")
            return finished.counted() | seen | {"served": served}

        return one

    def tables(self, samples):
        rows = []
        for case in samples.cases():
            if why := samples.failure(case, OURS):
                rows.append([case, f"failed: {why}", "", "", "", ""])
                continue
            rows.append(
                [
                    case,
                    cell(samples.of(case, OURS, "arrivals"), count),
                    cell(samples.of(case, OURS, "ks_d"), lambda v: f"{v:.4f}"),
                    cell(samples.of(case, OURS, "ks_p"), lambda v: f"{v:.2f}"),
                    cell(samples.of(case, OURS, "gap_cv"), lambda v: f"{v:.3f}"),
                    cell(samples.of(case, OURS, "gap_lag1_correlation"), lambda v: f"{v:.3f}"),
                ]
            )
        header = ["Poisson arrivals, 1,000/s", "arrivals", "Kolmogorov-Smirnov distance", "p"]
        header += ["gaps' deviation / mean (1)", "correlation of gaps in a row (0)"]
        note = (
            "Against the exponential distribution of the requested rate. p is how often "
            "chance alone gives such a distance: evenly spread between 0 and 1 if all is right."
        )
        return [Table("Poisson arrivals at the server", header, rows, [note])]

    def bounds(self, samples):
        for case in self.cases:
            values = list(samples.of(case, OURS, "ks_p").values())
            yield Bound(f"Poisson, {case}: p", values, 0.05, at_least=True)


class Http2(Experiment):
    name = "http2"
    title = "HTTP/2, plaintext (prior knowledge)"
    kind = "http2"
    shapes = {"64 × 1": (64, 1), "32 × 10": (32, 10), "4 × 100": (4, 100)}
    cases = tuple(shapes)
    others = ("h2load", "oha")

    def server(self):
        """The one that was asked for, else nghttpd, which is not ours."""
        name = self.options.h2_server or ("nghttpd" if self.bench.nghttpd else "meshtax")
        if name == "meshtax":
            return servers.meshtax(self.bench, body=64)
        if name == "nginx":
            return servers.nginx(self.bench, body=64, http2=True)
        return servers.nghttpd(self.bench)

    def jobs(self):
        for case, (connections, streams) in self.shapes.items():
            scene = Scene(self.kind, 0, connections, self.seconds(5), streams=streams)
            for tool in self.chosen(scene):
                if tool.name not in (OURS, *self.others):
                    continue
                near = tool.name in (OURS, "h2load")
                measure = self.measure(tool, connections, streams)
                yield Job(case, tool.name, measure, near=near)

    def measure(self, tool, connections, streams):
        def one(number):
            with self.server() as server:
                seconds = self.seconds(5)
                scene = Scene(self.kind, server.port, connections, seconds, streams=streams)
                finished, said = self.offer(tool, scene, server)
                server.stop()
            if said["completed"] == 0 or said["errors"] > said["completed"] / 100:
                raise Trouble(f"{said['completed']} answers, {said['errors']} errors")
            return finished.counted() | {
                "said": said,
                "requests_per_s": said["completed"] / seconds,
                "cpu_s_per_100k": finished.cpu_s / said["completed"] * 1e5,
                "server_cores": cpu_of(server.counts) / finished.wall_s,
            }

        return one

    def tables(self, samples):
        rows = []
        for case in samples.cases():
            for tool in peers_first(
                samples.tools(case), lambda t: middle(samples.of(case, t, "cpu_s_per_100k"))
            ):
                if why := samples.failure(case, tool):
                    rows.append([case, tool, f"failed: {why}", "", "", ""])
                    continue
                ours = samples.ratios(case, OURS, tool, "cpu_s_per_100k")
                rows.append(
                    [
                        case,
                        named(tool),
                        cell(samples.of(case, tool, "requests_per_s"), count),
                        cell(samples.of(case, tool, "cpu_s_per_100k"), significant),
                        cell(samples.of(case, tool, "peak_mb"), significant),
                        "1" if tool == OURS else cell(ours, ratio),
                    ]
                )
        header = ["connections × streams", "tool", "requests/s"]
        header += ["CPU-seconds per 100,000 requests", "peak memory MB", "CPU of meshtax / its"]
        return [Table(self.title, header, rows)]

    def bounds(self, samples):
        for case in self.cases:
            values = samples.ratios(case, OURS, "h2load", "cpu_s_per_100k")
            yield Bound(f"{self.name}, {case}: CPU per request / h2load's", values, 1.25)


class Grpc(Http2):
    name = "grpc"
    title = "gRPC, unary, an empty message each way"
    kind = "grpc"
    shapes = {"64 × 1": (64, 1), "32 × 10": (32, 10)}
    cases = tuple(shapes)
    others = ("h2load",)

    def server(self):
        return servers.meshtax(self.bench, body=0)


class Memory(Experiment):
    name = "memory"
    few, many = "100,000 requests", "10,000,000 requests"
    fewer = "1,000,000 requests"  # in a quick look
    cases = (few, fewer, many)

    def jobs(self):
        for case in (self.few, self.fewer if self.options.quick else self.many):
            requests = int(case.partition(" ")[0].replace(",", ""))
            scene = Scene("closed", 0, requests=requests)
            for tool in self.chosen(scene):
                if tool.name not in (OURS, FLOOR_CLOSED):
                    continue
                near = tool.name == OURS
                rounds = None if near else self.peer_rounds
                yield Job(case, tool.name, self.measure(tool, requests), near, rounds)

    def measure(self, tool, requests):
        def one(number):
            with servers.recorder(self.bench, fast=True) as server:
                scene = Scene("closed", server.port, requests=requests)
                finished, said = self.offer(tool, scene, server)
                served = server.stop()["requests"]
            return finished.counted() | {"said": said, "served": served}

        return one

    def tables(self, samples):
        rows = [
            [
                case,
                named(tool),
                samples.failure(case, tool) or cell(samples.of(case, tool, "served"), count),
                cell(samples.of(case, tool, "peak_mb"), lambda v: f"{v:.2f}"),
            ]
            for case in samples.cases()
            for tool in samples.tools(case)
        ]
        header = ["requested", "tool", "requests at the server", "peak memory MB"]
        return [Table("Memory against the number of requests", header, rows)]

    def bounds(self, samples):
        few, many = (samples.of(case, OURS, "peak_mb") for case in (self.few, self.many))
        more = [many[r] - few[r] for r in many if r in few]
        text = "memory: what ten million requests take above a hundred thousand, in MB"
        yield Bound(text, more, 2.0)


class Serve(Experiment):
    name = "serve"
    cases = ("HTTP/1.1", "HTTP/2")
    body = 1024

    def jobs(self):
        makers = {
            "meshtax serve": lambda: servers.meshtax(self.bench, body=self.body),
            "nginx": lambda: servers.nginx(self.bench, body=self.body),
            "floor: the recorder": lambda: servers.recorder(self.bench, body=self.body),
        }
        for name, make in makers.items():
            if name == "nginx" and self.bench.nginx is None:
                continue
            yield Job("HTTP/1.1", name, self.measure(make, self.http1), near=name[0] != "f")
        if self.bench.nginx is None or "h2load" not in self.bench.tools:
            return
        if not servers.speaks_http2(self.bench, servers.meshtax(self.bench)):
            self.options.say("serve: meshtax serve has no plaintext HTTP/2 yet")
            return
        makers["nginx"] = lambda: servers.nginx(self.bench, body=self.body, http2=True)
        for name in ("meshtax serve", "nginx"):
            yield Job("HTTP/2", name, self.measure(makers[name], self.http2), near=True)

    def http1(self, port):
        tool = self.bench.tools[FLOOR_CLOSED]
        return tool, Scene("closed", port, seconds=self.seconds(5))

    def http2(self, port):
        tool = self.bench.tools["h2load"]
        return tool, Scene("http2", port, 32, self.seconds(5), streams=10)

    def measure(self, make, load):
        def one(number):
            with make() as server:
                tool, scene = load(server.port)
                finished, said = self.offer(tool, scene, server)
                server.stop()
            cpu_s = cpu_of(server.counts)
            return {
                "said": said,
                "foreign_cores": finished.foreign_cores,
                "steal_cores": finished.steal_cores,
                "requests_per_s": said["completed"] / scene.seconds,
                "cpu_s_per_100k": cpu_s / said["completed"] * 1e5,
                "peak_mb": server.counts["peak_kib"] * 1024 / 1e6,
                "server_cores": cpu_s / finished.wall_s,
            }

        return one

    def tables(self, samples):
        rows = []
        for case in samples.cases():
            for tool in samples.tools(case):
                if why := samples.failure(case, tool):
                    rows.append([case, tool, f"failed: {why}", "", ""])
                    continue
                name = f"**{tool}**" if tool.startswith(OURS) else tool
                rows.append(
                    [
                        case,
                        name,
                        cell(samples.of(case, tool, "requests_per_s"), count),
                        cell(samples.of(case, tool, "cpu_s_per_100k"), significant),
                        cell(samples.of(case, tool, "peak_mb"), significant),
                    ]
                )
        header = ["", "server", "requests/s", "its CPU-seconds per 100,000 requests"]
        title = "Servers: the same body of 1 KiB"
        return [Table(title, [*header, "peak memory MB"], rows)]

    def bounds(self, samples):
        for case in self.cases:
            values = samples.ratios(case, "meshtax serve", "nginx", "cpu_s_per_100k")
            yield Bound(f"meshtax serve, {case}: CPU per request / nginx's", values, 1.0)


ALL = (ClosedLoop, NewConnections, OpenLoop, Stalls, Poisson, Http2, Grpc, Memory, Serve)
