"""Brings the peers. Each is optional: what cannot be had is named with the reason."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

# program -> Debian package
PACKAGES = {
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "nghttpd": "nghttp2-server",
    "hey": "hey",
}

# program -> crate, version
CRATES = {"oha": ("oha", "1.16.0")}

# program -> module, versions in the order in which they are tried. Where a registry lacks a
# dependency of the first, the next may do: fortio has a scripting engine since 1.69.
MODULES = {
    "fortio": ("fortio.org/fortio", ("v1.75.3", "v1.68.2")),
    "vegeta": ("github.com/tsenart/vegeta/v12", ("v12.12.0",)),
    "k6": ("go.k6.io/k6", ("v1.8.1",)),
}

PROGRAMS = (*PACKAGES, *CRATES, *MODULES)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "meshtax-bench"


def is_there(program, cache):
    return (cache / "bin" / program).exists() or shutil.which(program) is not None


def install(wanted, cache, say, limit_s):
    """Tries to bring what is wanted and not there; returns program -> why not."""
    (cache / "bin").mkdir(parents=True, exist_ok=True)
    why_not = {}
    absent = [program for program in wanted if program in PROGRAMS and not is_there(program, cache)]
    packages = [program for program in absent if program in PACKAGES]
    if packages:
        why = from_debian([PACKAGES[program] for program in packages], say)
        why_not |= {program: why for program in packages if not is_there(program, cache)}
    for program in absent:
        if program in CRATES:
            why = from_cargo(program, cache, say, limit_s)
        elif program in MODULES:
            why = from_go(program, cache, say, limit_s)
        else:
            continue
        if why:
            why_not[program] = why
    return why_not


def attempt(words, say, limit_s, **more):
    """Runs an installer; None when it worked, else the last line that says something."""
    say(f"  {' '.join(str(word) for word in words[:6])}")
    try:
        done = subprocess.run(
            ["nice", "-n", "10", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            **more,
        )
    except subprocess.TimeoutExpired:
        return f"building took more than {limit_s / 60:.0f} minutes"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return shortened(lines[-1]) if lines else f"exit code {done.returncode}"


def shortened(line):
    return line if len(line) <= 120 else line[:117] + "..."


def from_debian(packages, say):
    if shutil.which("apt-get") is None:
        return "no apt-get here"
    if os.geteuid() != 0:
        return f"needs root: apt-get install {' '.join(packages)}"
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if why := attempt(command, say, 600, env=environment):
        attempt(["apt-get", "update", "-qq"], say, 600, env=environment)
        why = attempt(command, say, 600, env=environment)
    return why


def from_cargo(program, cache, say, limit_s):
    if shutil.which("cargo") is None:
        return "no cargo here"
    crate, version = CRATES[program]
    with tempfile.TemporaryDirectory() as target:
        return attempt(
            ["cargo", "install", "--locked", "--root", cache, f"{crate}@{version}"],
            say,
            limit_s,
            env=os.environ | {"CARGO_TARGET_DIR": target},
        )


def from_go(program, cache, say, limit_s):
    if shutil.which("go") is None:
        return "no go here"
    module, versions = MODULES[program]
    why = None
    for version in versions:
        # A module of our own, rather than `go install`: that also asks for the list of versions,
        # which not every proxy has.
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "go.mod").write_text(
                f"module bench\n\ngo 1.24\n\nrequire {module} {version}\n"
            )
            command = ["go", "build", "-mod=mod", "-o", cache / "bin" / program, module]
            why = attempt(command, say, limit_s, cwd=folder)
        if why is None:
            return None
    return why


def nginx(cache, say, allowed):
    """The path of nginx, or None and why. Unpacked, not installed: installing starts a server."""
    own = cache / "nginx" / "usr" / "sbin" / "nginx"
    if own.exists():
        return own, None
    if path := shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin"):
        return Path(path), None
    if not allowed:
        return None, "not there, and installing was not allowed"
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None, "no apt-get here"
    with tempfile.TemporaryDirectory() as folder:
        # apt fetches as a user of its own, who must be able to write here.
        os.chmod(folder, 0o777)
        if why := attempt(["apt-get", "download", "nginx"], say, 300, cwd=folder):
            return None, why
        package = next(Path(folder).glob("nginx_*.deb"))
        if why := attempt(["dpkg-deb", "-x", package, cache / "nginx"], say, 60):
            return None, why
    return own, None
