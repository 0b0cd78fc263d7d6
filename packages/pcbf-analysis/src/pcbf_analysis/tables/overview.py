"""One table that decides: which critics have the right law, which act best, what acting by CVaR buys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pcbf_analysis import statistics, theme
from pcbf_analysis.results import Results
from pcbf_analysis.tables import calibration, contest, control_suite, exact
from pcbf_analysis.tables.form import Column, Estimate, Table
from pcbf_analysis.tables.scores import ahead_of_all, data_note, differences_by_seed, load_suite, paired_differences
from pcbf_records.calibration import DATASETS
from pcbf_records.exact import MDPS, MEAN, measure_name
from pcbf_records.toy import PROCESSES, TOY_METHODS

Scores = Mapping[str, Mapping[int, float]]  # of methods, by seed
Places = Mapping[str, Scores]  # by process, dataset or task

INPUTS = (*contest.INPUTS, *exact.INPUTS, *calibration.INPUTS, *control_suite.INPUTS)
TITLE = "One table that decides: who has the right law, who acts best, what acting by CVaR buys"
CAPTION = (
    "Law on reward processes: W1 from the learned to the exact law, in units of its standard deviation; PCBF on the "
    "flow path has λ = 1 everywhere, all others the best of their coefficients on tuning seeds. Law on simulators: "
    "CRPS against the returns of held-out episodes, in standard deviations of the training returns. Exact control: "
    "what the learned policy loses in mean return to the best one, and what the same critic gains in CVaR at "
    f"{exact.TAIL:g} by acting by CVaR at {exact.TAIL:g}. Control suite: the score in percent, and what it is over "
    "behaviour cloning, seed by seed. Every cell is a mean over the processes, datasets or tasks of its column and "
    "then over seeds, with Student's 95 % interval over seeds in brackets; of law and regret less is better, of the "
    "rest more. Bold is ahead of every other method of its column by the interval of the differences seed by seed. A "
    "dash: the method has no law or does not act, or a part of the column has no records of it."
)
ORDER = (
    *("pcbf_flow", "pcbf", "value_flows", "flow_iqn", "iqn", "c51", "codac", "gaussian"),
    *("iql", "fql", "floq", "bc", "random"),
)
ABLATION = "pcbf-independent"  # no method anyone would choose
INTERVAL_SHARE = 0.13  # of the line's width in LaTeX


@dataclass(frozen=True)
class Question:
    """A column: what is asked of a method everywhere that it is asked.

    Attributes:
      sign: 1 where more is better, -1 where less is.
      parts: what its mean is over.
      is_contest: whether methods are ranked by it; a column that only restates another has no winner of its own.
    """

    name: str
    title: str
    unit: str
    digits: int
    sign: int
    parts: str
    ask: Callable[[Results], Places]
    is_contest: bool = True

    @property
    def column(self) -> Column:
        return Column(self.name, f"{self.title}, {self.unit}", digits=self.digits, share=INTERVAL_SHARE)


def reward_processes(results: Results) -> Places:
    """W1 over the law's standard deviation on every reward process."""

    def distances(process: str, method: str) -> dict[int, float]:
        found = contest.entry(results, process, method)
        if found is None:
            return {}
        return dict(zip(found[0].seeds.tolist(), contest.relative_w1(*found).tolist(), strict=True))

    methods = [method for method in TOY_METHODS if method != ABLATION]
    return {process: {method: distances(process, method) for method in methods} for process in PROCESSES}


def simulators(results: Results) -> Places:
    """CRPS on every dataset; the references are no contestants."""
    return {
        dataset: {
            method: calibration.by_seed(results, dataset, method, "crps")
            for method in calibration.methods_of(results, dataset)
            if method not in calibration.REFERENCES
        }
        for dataset in DATASETS
    }


def regrets(results: Results) -> Places:
    """What the learned policy loses in mean return on every decision process."""

    def regret(mdp: str, method: str) -> dict[int, float]:
        best = exact.optimum(results, mdp, MEAN, "mean")
        return {seed: best - mean for seed, mean in exact.by_seed(results, mdp, method, MEAN, "mean").items()}

    return {mdp: {method: regret(mdp, method) for method in exact.methods_of(results, mdp)} for mdp in MDPS}


def gains(results: Results) -> Places:
    """What a critic gains in CVaR by acting by it, on every decision process."""

    def gain(mdp: str, method: str) -> dict[int, float]:
        by_tail, by_mean = (
            exact.by_seed(results, mdp, method, level, measure_name(exact.TAIL)) for level in (exact.TAIL, MEAN)
        )
        return differences_by_seed(by_tail, by_mean)

    return {mdp: {method: gain(mdp, method) for method in exact.methods_of(results, mdp)} for mdp in MDPS}


def suite_scores(results: Results) -> Places:
    """Scores on every task of the control suite."""
    suite = load_suite(results)
    return {task: {method: suite.by_seed(task, method) for method in suite.methods} for task in suite.tasks}


def over_cloning(results: Results) -> Places:
    """Scores less those of behaviour cloning, on every task."""
    clone = control_suite.CLONE
    return {
        task: {name: differences_by_seed(own, scores.get(clone, {})) for name, own in scores.items() if name != clone}
        for task, scores in suite_scores(results).items()
    }


QUESTIONS = (
    Question("law_processes", "Law on reward processes", "W1 / std", 4, -1, "reward processes", reward_processes),
    Question("law_simulators", "Law on simulators", "CRPS", 3, -1, "datasets", simulators),
    Question("regret", "Exact control", "regret", 3, -1, "decision processes", regrets),
    Question("gain", "Exact control", "CVaR gained", 3, 1, "decision processes", gains),
    Question("score", "Control suite", "%", 1, 1, "tasks", suite_scores),
    Question("over_bc", "Control suite", "over BC", 1, 1, "tasks", over_cloning, is_contest=False),
)
COLUMNS = (Column("method", "Method", is_number=False), *(question.column for question in QUESTIONS))
DETAIL_COLUMNS = (
    Column("measure", "Measure", is_number=False),
    Column("method", "Method", is_number=False),
    Column("num_parts", "Parts", digits=0),
    Column("num_seeds", "Seeds", digits=0),
    Column("mean", "Mean"),
    Column("low", "from"),
    Column("high", "to"),
    Column("is_ahead", "Ahead of all", is_number=False),
)


def asked(places: Places) -> list[Scores]:
    """The places where anyone has an answer."""
    return [scores for scores in places.values() if any(scores.values())]


def averaged(places: Places) -> dict[str, dict[int, float]]:
    """Each method's mean over all places that were asked, by seed; none for who lacks one of them."""
    known = asked(places)
    methods = dict.fromkeys(method for scores in known for method in scores)
    return {method: _mean_by_seed([scores.get(method, {}) for scores in known]) for method in methods}


def _mean_by_seed(parts: list[Mapping[int, float]]) -> dict[int, float]:
    seeds = sorted(set.intersection(*(set(part) for part in parts)))
    return {seed: float(np.mean([part[seed] for part in parts])) for seed in seeds}


def estimates(question: Question, scores: Scores) -> dict[str, Estimate]:
    """A cell for every method with an answer; bold where it is ahead of every other."""
    ranked = {method: {seed: question.sign * value for seed, value in own.items()} for method, own in scores.items()}
    ahead = ahead_of_all(ranked) if question.is_contest else {}
    return {
        method: Estimate(*exact.with_interval(np.array(list(own.values()))), question.digits, ahead.get(method, False))
        for method, own in scores.items()
        if own
    }


def compute(results: Results) -> Table:
    """A row per method, a column per question; the csv has a row for each cell."""
    answers = {question: question.ask(results) for question in QUESTIONS}
    scores = {question: averaged(places) for question, places in answers.items()}
    cells = {question: estimates(question, found) for question, found in scores.items()}
    methods = in_rows({method for found in cells.values() for method in found})
    rows = [(method, *(cells[question].get(method) for question in QUESTIONS)) for method in methods]
    details = [
        (question.name, method, len(asked(answers[question])), len(scores[question][method]), *found[method].values)
        for question, found in cells.items()
        for method in methods
        if method in found
    ]
    note = _note(results, answers, scores) if rows else ""
    return Table(COLUMNS, tuple(rows), note, Table(DETAIL_COLUMNS, tuple(details)), is_dense=True)


def in_rows(methods: Iterable[str]) -> list[str]:
    """Methods in the order of the rows: laws, then values alone, then what all must beat; others after them by name."""
    return sorted(methods, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def standing(question: Question, scores: Scores) -> tuple[str, list[str]]:
    """The method with the best mean of a column, and those that it cannot be told from, seed by seed."""
    known = {method: own for method, own in scores.items() if own}
    best = max(known, key=lambda method: question.sign * float(np.mean(list(known[method].values()))))
    leads = {
        method: statistics.student_interval(question.sign * paired_differences(known[best], own))
        for method, own in known.items()
        if method != best
    }
    return best, in_rows(method for method, lead in leads.items() if not lead.low > 0)


def _note(results: Results, answers: Mapping[Question, Places], scores: Mapping[Question, Scores]) -> str:
    """Who is best in which column, what could be gained at most, and what the columns rest on."""
    contests = [question for question in QUESTIONS if question.is_contest and any(scores[question].values())]
    best = "; ".join(_standing_words(question, scores[question]) for question in contests)
    sizes = {
        question.parts: f"{len(asked(answers[question]))} ({max(map(len, scores[question].values()))} seeds)"
        for question in contests
    }
    numbers = ", ".join(f"{parts}: {size}" for parts, size in sizes.items())
    suite = load_suite(results)
    told = f"Best mean, and in brackets who cannot be told from it: {best}."
    num_diverged = sum(suite.diverged.values())
    lost = f"{num_diverged} runs of the suite diverged and have no score." if num_diverged else ""
    about = data_note(results, suite, suite.tasks) if suite.tasks else ""
    return " ".join(filter(None, [told, _to_gain(results), f"Number of {numbers}.", lost, about]))


def _standing_words(question: Question, scores: Scores) -> str:
    best, level = standing(question, scores)
    others = "; ".join(map(theme.method_label, level)) if level else "nobody"
    return f"{question.title}, {question.unit}: {theme.method_label(best)} ({others})"


def _to_gain(results: Results) -> str:
    """What the best policy and a perfect critic gain in CVaR, mean over the decision processes."""
    tail = measure_name(exact.TAIL)

    def gain(policy: str) -> float:
        ends = [
            (exact.optimum(results, mdp, exact.TAIL, tail, policy), exact.optimum(results, mdp, MEAN, tail))
            for mdp in MDPS
        ]
        return float(np.mean([after - before for after, before in ends]))

    best, perfect = gain(exact.OPTIMUM), gain(exact.EXACT_CRITIC)
    if math.isnan(best) or math.isnan(perfect):
        return ""
    return (
        f"The best policy with memory gains {best:.3f} in CVaR, acting by the exact law of the best mean {perfect:.3f}."
    )
