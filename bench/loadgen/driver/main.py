"""The command line: what is measured, in which order, and what becomes of it."""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from . import experiments, install, servers, tools
from .figures import Samples, Table, percent
from .process import Bench, Trouble, output_of

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
ENOUGH_ROUNDS = 9


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments(words):
    names = ",".join(each.name for each in experiments.ALL)
    parser = argparse.ArgumentParser(
        prog="bench/loadgen/run",
        description="Compares meshtax load with other load generators and with two floors.",
    )
    add = parser.add_argument
    add("--rounds", type=int, help="interleaved rounds [9, with --quick 2]")
    add("--only", default=names, metavar="NAMES", help=f"what to measure, of {names}")
    add("--tools", metavar="NAMES", help="which tools, by the names in the tables [all]")
    add("--seconds", type=int, help="length of each run [2 to 30, by experiment]")
    add("--quick", action="store_true", help="two rounds of short runs: a look, not a result")
    add("--seed", type=int, help="seed of the order and of arrivals [random]")
    add("--check", action="store_true", help="exit code 1 when a bound is missed")
    add("--out", type=Path, metavar="DIR", help="where raw results go [results/<time> beside run]")
    add("--markdown", type=Path, metavar="FILE", help="write the tables into this file, too")
    add(
        "--from",
        type=Path,
        dest="stored",
        metavar="DIR",
        action="append",
        help="print the results of an earlier run; of several, if it was measured in parts",
    )
    add("--no-install", action="store_true", help="bring nothing, use what is there")
    add("--install-limit", type=float, default=30, metavar="MINUTES", help="for building one peer [30]")
    add("--meshtax", type=Path, metavar="FILE", help="this binary instead of building one")
    add("--server-core", type=int, default=0, help="core of the servers [0]")
    add("--load-core", type=int, default=1, help="core of the generators [1]")
    add("--h2-server", choices=("nghttpd", "meshtax", "nginx"), help="for HTTP/2 [nghttpd]")
    options = parser.parse_args(words)
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(names.split(",")):
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    options.tools = set(options.tools.split(",")) if options.tools else None
    if unknown := (options.tools or set()) - {kind.name for kind in tools.ALL}:
        parser.error(f"--tools: there is no {', '.join(sorted(unknown))}")
    options.rounds = options.rounds or (2 if options.quick else ENOUGH_ROUNDS)
    options.seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    options.say = say
    return options


def main(words):
    options = arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.stored:
            results = put_together(options.stored)
        else:
            results = measure(options)
    except Trouble as trouble:
        say(f"error: {trouble}")
        return 2
    except KeyboardInterrupt:
        return 130
    return show(results, options)


# --- before ------------------------------------------------------------------------------------


def prepare(options, scratch):
    """Brings the peers and builds what is ours."""
    cores = os.sched_getaffinity(0)
    if not {options.server_core, options.load_core} <= cores or len(cores) < 2:
        raise Trouble("two cores are needed: see --server-core and --load-core")
    cache = install.cache_folder()
    say("peers")
    why_not = {}
    if not options.no_install:
        wanted = [p for p in install.PROGRAMS if not options.tools or needed(p, options.tools)]
        why_not = install.install(wanted, cache, say, options.install_limit * 60)
    bench = Bench(
        helper=built(HERE, "loadgen-bench"),
        scratch=scratch,
        server_core=options.server_core,
        load_core=options.load_core,
        meshtax=options.meshtax and options.meshtax.resolve() or built(ROOT, "meshtax"),
    )
    bench.uring = servers.has_uring(bench)
    bench.tools, absent = tools.find(bench, cache)
    bench.missing = {program: why_not.get(program, "not there") for program in absent}
    bench.nginx, why = install.nginx(cache, say, not options.no_install)
    if why:
        bench.missing["nginx"] = why
    path = shutil.which("nghttpd")
    bench.nghttpd = path and Path(path)
    if not path:
        bench.missing["nghttpd"] = why_not.get("nghttpd", "not there")
    for program, why in bench.missing.items():
        say(f"  {program} is not installed: {why}")
    return bench


def needed(program, names):
    """Whether a program is one of those that were asked for, or serves them."""
    return program == "nghttpd" or any(program == name.split(" ")[0] for name in names)


def built(folder, program):
    """Builds a workspace's program for release, and returns its path."""
    say(f"building {program}")
    manifest = folder / "Cargo.toml"
    build = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(manifest)]
    if subprocess.run(build, check=False).returncode != 0:
        raise Trouble(f"cargo could not build {program}")
    about = output_of(
        ["cargo", "metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest]
    )
    if about is None:
        raise Trouble("cargo metadata failed")
    return Path(json.loads(about)["target_directory"]) / "release" / program


def environment(bench, options):
    """What the figures depend on, without names of machines or people."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    commit = output_of(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"])
    changed = output_of(["git", "-C", ROOT, "status", "--porcelain", "--", "crates", "Cargo.lock"])
    versions = {}
    for tool in bench.tools.values():
        if tool.program:
            versions[tool.program] = tool.version()
    if bench.nginx:
        text = subprocess.run([bench.nginx, "-v"], capture_output=True, text=True, check=False).stderr
        versions["nginx"] = text.strip().rpartition("/")[2].split(" ")[0]
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "meshtax": bench.tools["meshtax"].version() if "meshtax" in bench.tools else "",
        "commit": (commit or "").strip() + (" with changes" if changed else ""),
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release().partition("-")[0],
        "congestion_control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "io_uring": bench.uring,
        "server_core": options.server_core,
        "load_core": options.load_core,
        "rounds": options.rounds,
        "seed": options.seed,
        "quick": options.quick,
        "versions": versions,
        "missing": bench.missing,
    }


# --- measuring ---------------------------------------------------------------------------------


def measure(options):
    out = options.out or HERE / "results" / datetime.now().strftime("%Y%m%d-%H%M%S")
    with tempfile.TemporaryDirectory(prefix="loadgen-bench-") as scratch:
        bench = prepare(options, Path(scratch))
        # From here on this process works on the server's core only, and hardly at all.
        os.sched_setaffinity(0, {options.server_core})
        out.mkdir(parents=True, exist_ok=True)
        results = {"environment": environment(bench, options), "samples": []}
        order = random.Random(options.seed)
        say(f"{options.rounds} rounds, seed {options.seed}, raw results in {out.name}/results.json")
        for kind in experiments.ALL:
            if kind.name in options.only:
                one_experiment(kind(bench, options), options, order, results["samples"], out, results)
    return results


def one_experiment(experiment, options, order, samples, out, results):
    jobs = list(experiment.jobs())
    for number in range(1, options.rounds + 1):
        due = [job for job in jobs if job.rounds is None or number <= job.rounds]
        for job, turn in shuffled(due, experiment.turns, order):
            sample = {
                "experiment": experiment.name,
                "case": job.case,
                "tool": job.tool,
                "round": (number - 1) * experiment.turns + turn + 1,
                "at_s": round(time.monotonic(), 3),
            }
            try:
                sample |= job.measure(sample["round"])
            except Trouble as trouble:
                sample["failed"] = str(trouble)
            samples.append(sample)
            say(f"  {experiment.name} {number}/{options.rounds} {job.case} {job.tool}: {brief(sample)}")
            clear(experiment.bench.scratch)
        # After every round: what was measured is not lost when the rest goes wrong.
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")


def shuffled(jobs, turns, order):
    """A random order of jobs and turns. What a bound compares follows each other, case by case and
    turn by turn; the others have one turn."""
    blocks = []
    for case in dict.fromkeys(job.case for job in jobs):
        near = [job for job in jobs if job.case == case and job.near]
        block = []
        for turn in range(turns):
            order.shuffle(near)
            block += [(job, turn) for job in near]
        blocks += [block] + [[(job, 0)] for job in jobs if job.case == case and not job.near]
    order.shuffle(blocks)
    return [each for block in blocks for each in block]


def brief(sample):
    if "failed" in sample:
        return f"FAILED: {sample['failed']}"
    keys = ("requests_per_s", "cpu_s_per_100k", "error_p99_us", "burst_share", "own_p99", "own_max")
    keys += ("ks_p", "peak_mb")
    return ", ".join(f"{key} {sample[key]:.4g}" for key in keys if sample.get(key) is not None)


def clear(scratch):
    for path in scratch.iterdir():
        if path.is_file():
            path.unlink()


# --- after -------------------------------------------------------------------------------------


def put_together(folders):
    """The results of a run that was measured in parts: no machine is quiet for as long as it takes. Of
    an experiment that stands in several of them, the last one's count."""
    parts = [json.loads((folder / "results.json").read_text()) for folder in folders]
    whole = parts[0]
    seeds, commits, by_name = [], {}, {}
    for part in parts:
        about = part["environment"]
        for key in ("cpu", "cores", "kernel", "rounds", "versions"):
            if about[key] != whole["environment"][key]:
                raise Trouble(f"{folders[0]} and the others differ in {key}: not parts of one run")
        seeds.append(str(about["seed"]))
        for name in dict.fromkeys(sample["experiment"] for sample in part["samples"]):
            by_name[name] = (about["commit"], [s for s in part["samples"] if s["experiment"] == name])
    for name, (commit, _) in by_name.items():
        commits.setdefault(commit, []).append(name)
    whole["samples"] = [sample for _, samples in by_name.values() for sample in samples]
    whole["environment"]["seed"] = ", ".join(seeds)
    if len(commits) > 1:
        told = (f"{commit}: {', '.join(names)}" for commit, names in commits.items())
        whole["environment"]["commit"] = "; ".join(told)
    return whole


def lengths(samples):
    """How long the runs of each experiment were, start and end included."""
    by_name = {}
    for sample in samples:
        if "wall_s" in sample:
            by_name.setdefault(sample["experiment"], []).append(sample["wall_s"])
    told = [f"{name} {median(walls):.0f} s" for name, walls in by_name.items()]
    return f"Length of a run in the median: {', '.join(told)}."


def show(results, options):
    bounds, parts = [], []
    for kind in experiments.ALL:
        if kind.name not in options.only:
            continue
        experiment = kind(None, options)
        samples = Samples(results["samples"], experiment)
        if samples.all:
            parts += [table.markdown() for table in experiment.tables(samples)]
            bounds += experiment.bounds(samples)
    header = ["bound", "limit", "median (range) of the rounds", "rounds", ""]
    verdicts = Table("The bounds", header, [bound.row() for bound in bounds])
    text = "\n".join([preamble(results, options.only), verdicts.markdown(), *parts])
    print(text)
    if options.markdown:
        options.markdown.write_text(f"{document_head()}\n{text}")
    return conclude(bounds, results, options)


def document_head():
    return (
        "# Load generators, compared\n\n"
        "Produced by `bench/loadgen/run --markdown docs/loadgen-benchmark.md`; do not edit by hand.\n"
        "What is measured and how: [bench/loadgen/README.md](../bench/loadgen/README.md).\n"
    )


def preamble(results, shown):
    about = results["environment"]
    samples = [s for s in results["samples"] if s["experiment"] in shown]
    foreign = [s["foreign_cores"] for s in samples if "foreign_cores" in s]
    steal = [s["steal_cores"] for s in samples if "steal_cores" in s]
    lines = [
        f"{about['date']}, {about['meshtax']} ({about['commit']}), {about['cpu']}, "
        f"{about['cores']} cores, Linux {about['kernel']}, {about['congestion_control']}"
        f"{'' if about['io_uring'] else ', no io_uring'}. "
        f"Server on core {about['server_core']}, generator on core {about['load_core']}, loopback. "
        f"{about['rounds']} interleaved rounds, seed {about['seed']}. "
        "Each figure is a median, with the range of the rounds.",
        "",
        "Versions: " + ", ".join(f"{n} {v}" for n, v in about["versions"].items() if v) + ".",
        "",
        lengths(samples),
    ]
    if about["missing"]:
        missing = "; ".join(f"{name} ({why})" for name, why in about["missing"].items())
        lines += ["", f"Not installed: {missing}."]
    if foreign:
        lines += [
            "",
            f"Other work on the machine took {percent(median(foreign))} of a core in the median "
            f"run, {percent(max(foreign))} at most; the hypervisor took {percent(median(steal))}, "
            f"{percent(max(steal))} at most.",
        ]
    if about["quick"] or about["rounds"] < ENOUGH_ROUNDS:
        lines += ["", f"**Provisional**: bounds are for at least {ENOUGH_ROUNDS} rounds of full length."]
    return "\n".join([*lines, ""])


def conclude(bounds, results, options):
    missed = [bound for bound in bounds if bound.holds is False]
    unknown = [bound for bound in bounds if bound.holds is None]
    for word, which in (("missed", missed), ("not measured", unknown)):
        for bound in which:
            figure = "" if bound.figure is None else f": {bound.figure:.3g}"
            say(f"{word}: {bound.text}{figure} (limit {bound.limit:g})")
    return 1 if options.check and (missed or unknown) else 0
