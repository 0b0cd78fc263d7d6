"""How numbers become a verdict: measurements with intervals, held against what a claim says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from numpy.typing import ArrayLike

from pcbf_analysis import statistics, theme

Verdict = Literal["holds", "fails", "undecided at this scale", "needs paper scale"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "fails"
UNDECIDED: Verdict = "undecided at this scale"
NEEDS_PAPER: Verdict = "needs paper scale"
VERDICTS: tuple[Verdict, ...] = (HOLDS, FAILS, UNDECIDED, NEEDS_PAPER)


@dataclass(frozen=True)
class Measure:
    """A number with its 95 % interval; the interval of an exact number is the number, an unknown one is nan."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def minus(self, bound: float) -> Measure:
        return Measure(self.value - bound, self.low - bound, self.high - bound)


@dataclass(frozen=True)
class Decision:
    """A verdict, the number it rests on, and in words what was measured."""

    verdict: Verdict
    measured: Measure
    note: str


def exact(value: float) -> Measure:
    """A number without uncertainty, such as a count or a value in closed form."""
    return Measure(float(value), float(value), float(value))


def student(values: ArrayLike) -> Measure:
    """Mean over seeds with Student's interval; the interval is unknown below two seeds."""
    return Measure(statistics.mean(values), *statistics.student_interval(values))


def side(measure: Measure) -> Verdict:
    """Whether a quantity that the claim says is at most zero is so: by its whole interval, or undecided."""
    if measure.high <= 0:
        return HOLDS
    return FAILS if measure.low > 0 else UNDECIDED


def within(measure: Measure, low: float | None, high: float | None) -> Verdict:
    """Whether a quantity lies between two bounds, either of which may be absent."""
    sides: list[Verdict] = [side(measure.minus(high))] if high is not None else []
    if low is not None:
        sides.append(side(Measure(low - measure.value, low - measure.high, low - measure.low)))
    return together(sides)


def together(verdicts: Iterable[Verdict], exceptions: int = 0) -> Verdict:
    """The verdict on a claim about all of several cases, of which `exceptions` may not hold."""
    found = list(verdicts)
    if not found:
        return UNDECIDED
    failing = found.count(FAILS)
    if failing > exceptions:
        return FAILS
    return HOLDS if len(found) - found.count(HOLDS) <= exceptions else UNDECIDED


def undecided(note: str = theme.NO_RECORDS) -> Decision:
    return Decision(UNDECIDED, Measure(math.nan), note)


def needs_paper(note: str, measured: Measure | None = None) -> Decision:
    return Decision(NEEDS_PAPER, measured or Measure(math.nan), note)


@dataclass(frozen=True)
class Case:
    """One of several cases that a claim is about."""

    name: str
    measured: Measure
    verdict: Verdict


def over_cases(cases: Sequence[Case], what: str, *, exceptions: int = 0, worst: str = "largest") -> Decision:
    """The decision on all cases: the number is that of the worst case, the note counts and names the others.

    `worst` says which end of the numbers speaks against the claim, "largest" or "smallest".
    """
    known = [case for case in cases if math.isfinite(case.measured.value)]
    if len(known) < len(cases):
        missing = ", ".join(case.name for case in cases if case not in known)
        if not known:
            return undecided()
        partial = over_cases(known, what, exceptions=exceptions, worst=worst)
        verdict = FAILS if partial.verdict == FAILS else UNDECIDED
        return replace(partial, verdict=verdict, note=f"{partial.note}; {theme.NO_RECORDS}: {missing}")
    if not known:
        return undecided()
    chosen = (max if worst == "largest" else min)(known, key=lambda case: case.measured.value)
    held = sum(case.verdict == HOLDS for case in known)
    others = [f"{case.name} {_short(case.verdict)}" for case in known if case.verdict != HOLDS]
    note = f"{what}: {held} of {len(known)} hold" + (f" ({worst}: {chosen.name})" if len(known) > 1 else "")
    if others:
        note += "; " + ", ".join(others[:6]) + (f" and {len(others) - 6} more" if len(others) > 6 else "")
    return Decision(together([case.verdict for case in known], exceptions), chosen.measured, note)


def _short(verdict: Verdict) -> str:
    return {FAILS: "fails", UNDECIDED: "undecided"}.get(verdict, str(verdict))
