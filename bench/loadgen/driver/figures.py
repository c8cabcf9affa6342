"""Samples, their medians and ranges, and how they are written."""

from dataclasses import dataclass, field
from statistics import median


class Samples:
    """What was measured: a dictionary per run of a tool."""

    def __init__(self, all_samples, experiment):
        self.all = [s for s in all_samples if s["experiment"] == experiment.name]
        self.order = experiment.cases

    def of(self, case, tool, key):
        """A figure's values, by round."""
        return {
            s["round"]: s[key]
            for s in self.all
            if s["case"] == case and s["tool"] == tool and s.get(key) is not None
        }

    def tools(self, case):
        """Those that were tried."""
        return list(dict.fromkeys(s["tool"] for s in self.all if s["case"] == case))

    def cases(self):
        """Those that were measured, in the experiment's order."""
        found = {s["case"] for s in self.all}
        return [case for case in self.order if case in found]

    def failure(self, case, tool):
        """Why a tool has no figure, if it has none."""
        mine = [s for s in self.all if s["case"] == case and s["tool"] == tool]
        failed = [s["failed"] for s in mine if "failed" in s]
        return failed[-1] if len(failed) == len(mine) and failed else None

    def ratios(self, case, tool, other, key):
        """tool / other in each round that has both."""
        mine, theirs = self.of(case, tool, key), self.of(case, other, key)
        return [mine[r] / theirs[r] for r in sorted(mine) if theirs.get(r)]


@dataclass
class Table:
    title: str
    header: list
    rows: list
    notes: list = field(default_factory=list)

    def markdown(self):
        lines = [f"## {self.title}", ""]
        lines += [row_of(self.header), row_of("---" for _ in self.header)]
        lines += [row_of(row) for row in self.rows]
        lines += ["", *(line for note in self.notes for line in (note, ""))]
        return "\n".join(lines)


def row_of(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


@dataclass
class Bound:
    """A figure that must not be passed, in either direction."""

    text: str
    values: list
    limit: float
    at_least: bool = False
    digits: int = 2
    rounds: int | None = None  # where there are not as many values

    @property
    def figure(self):
        return median(self.values) if self.values else None

    @property
    def holds(self):
        """None when there is nothing to judge."""
        if self.figure is None:
            return None
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def row(self):
        sign = "≥" if self.at_least else "≤"
        word = {True: "holds", False: "**missed**", None: "not measured"}[self.holds]
        spread = cell(self.values, lambda v: f"{v:.{self.digits}f}")
        rounds = self.rounds if self.rounds is not None else len(self.values)
        return [self.text, f"{sign} {self.limit:g}", spread, rounds, word]


def cell(values, write):
    """A median and its range."""
    values = list(values.values()) if isinstance(values, dict) else list(values)
    if not values:
        return "-"
    middle, low, high = write(median(values)), write(min(values)), write(max(values))
    return middle if low == high else f"{middle} ({low} – {high})"


def count(value):
    """1,234 or 116k."""
    if value >= 99_950:
        return f"{value / 1000:.0f}k"
    if value >= 9_995:
        return f"{value / 1000:.1f}k"
    return f"{value:,.0f}"


def significant(value):
    """Three digits or so."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    if abs(value) >= 0.1:
        return f"{value:.2f}"
    return f"{value:.2g}"


def millis(value):
    return significant(value * 1e3)


def percent(value):
    return f"{value * 100:.0f} %"


def ratio(value):
    return f"{value:.2f}"
