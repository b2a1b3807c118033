"""A short greedy search for the fastest way to train one workload on one device.

It starts from the article's loop. Each candidate is added to the best so far and raced against it, interleaved with
replicates, and is kept only where the whole interval of the gain lies above 1, the losses are the article's and the
whole job gains too. At the end the choice is raced against the article's loop once more, and given up where it is
not faster: what is chosen is never slower than the article's loop was, as far as 95% intervals tell. Precision, batch
size and cached features are never touched, so that the choice stays comparable between devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from epochbench.analysis.flags import flags
from epochbench.analysis.gains import gain
from epochbench.analysis.sides import Side
from epochbench.analysis.speedup import speedup
from epochbench.errors import InputError
from epochbench.measure.termination import stopped_by
from epochbench.recipe import ARTICLE, Recipe
from epochbench.report.terminal import duration
from epochbench.tuning.candidates import Candidate, candidates, recipe_of, why_not, with_added
from epochbench.tuning.racing import NotMeasured, OutOfTime, Racing

REPLICATES = 3
NOISE = "within the noise"
BEYOND_THE_BUDGET = ("not begun", "not ended")
COMPILING_SECONDS = 20.0
"""What compiling is expected to add to a race before it was seen: the first measurement compiles, and the later ones
find the code in torch's cache."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one candidate. `row` are its figures over the best before it, as `gain` has them."""

    name: str
    outcome: Literal["kept", "dropped", "passed over", "not begun", "not ended"]
    reason: str | None = None
    row: Row | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search chose. `row` are the choice's figures over the article's loop, None where it is that loop.

    `confirmed` says that they come from the last race, which an interrupted search does not reach, and `interrupted`
    by what it was; `reason` says why what was kept was given up in the end. `tried` is false where no candidate was
    raced to an end, and then nothing is known to be the best.
    """

    recipe: Recipe
    tried: bool = True
    row: Row | None = None
    confirmed: bool = True
    interrupted: str | None = None
    reason: str | None = None


@dataclass(kw_only=True)
class Search:
    """One search of at most `budget_seconds` from the `began` of its races; `on_trial` is told of each candidate."""

    racing: Racing
    budget_seconds: float
    on_trial: Callable[[Trial], None] = lambda trial: None
    kept: tuple[Candidate, ...] = ()
    threads: int = 1
    _sides: dict[str, Side] = field(default_factory=dict)
    _trials: list[Trial] = field(default_factory=list)
    _end: float = 0.0

    def run(self) -> Found:
        """Search. Raises NotMeasured where the article's loop cannot be measured, InputError for a budget too small.

        Ctrl-C and SIGTERM end the search with what was found so far.
        """
        self._end = self.racing.began + self.budget_seconds
        try:
            self._begin()
            for one in candidates(self.threads):
                trial, side = self._try(one)
                self._trials.append(trial)
                if side is not None:
                    self.kept = with_added(self.kept, one)
                    self._sides[side.recipe] = side
                self.on_trial(trial)
            return self._confirm()
        except KeyboardInterrupt as error:
            return self._interrupted(stopped_by(error))

    def _begin(self) -> None:
        """Measure the article's loop once, which tells what a race takes."""
        try:
            side = self.racing.run([ARTICLE], 1, deadline=self._end)[ARTICLE.name]
        except OutOfTime as error:
            what = f"the article's loop was not measured once in {duration(self.budget_seconds)}"
            raise InputError(f"--budget: {what}, and a search measures it a dozen times; give more") from error
        self._sides[ARTICLE.name] = side
        self.threads = side.fact("threads") or 1
        race = self._race_seconds(ARTICLE, ARTICLE)
        needed = self.racing.clock() - self.racing.began + 2 * race
        if needed > self.budget_seconds:
            raise InputError(
                f"--budget: a race against the article's loop takes about {duration(race)} here, and a search is two "
                f"at least; give --budget {round(needed * 1.2) + 1} or more"
            )

    def _race_seconds(self, *recipes: Recipe) -> float:
        """What a race takes whose contenders take as long as these recipes did."""
        return self.racing.preparing_seconds + REPLICATES * sum(self.racing.cost_seconds[one.name] for one in recipes)

    def _try(self, one: Candidate) -> tuple[Trial, Side | None]:
        """(what became of a candidate, its side of the race where it is kept)."""
        best, recipe = recipe_of(self.kept), recipe_of(with_added(self.kept, one))
        if reason := why_not(one, best, self.racing.device, self.threads):
            return Trial(name=one.name, outcome="passed over", reason=reason), None
        left = self._end - self.racing.clock()
        more = COMPILING_SECONDS if recipe.compile not in (None, best.compile) else 0.0
        expected, last = (self._race_seconds(other, best) + more for other in (best, ARTICLE))
        if expected + last > left:
            reason = f"{duration(max(0.0, left))} left of the budget, {duration(expected + last)} needed"
            return Trial(name=one.name, outcome="not begun", reason=reason), None
        try:
            sides = self.racing.run([recipe, best], REPLICATES, deadline=self._end - last)
        except OutOfTime:
            return Trial(name=one.name, outcome="not ended", reason="its race did not end within the budget"), None
        except NotMeasured as error:
            outcome = "passed over" if error.status == "skipped" else "dropped"
            reason = error.reason if error.recipe == recipe.name else f"without it: {error.reason}"
            return Trial(name=one.name, outcome=outcome, reason=reason), None
        if best.name == ARTICLE.name:
            self._sides[ARTICLE.name] = sides[ARTICLE.name]
        row, reason = self._judged(sides[best.name], sides[recipe.name])
        outcome = "dropped" if reason else "kept"
        trial = Trial(name=one.name, outcome=outcome, reason=reason, row=row)
        return trial, None if reason else sides[recipe.name]

    def _judged(self, base: Side, side: Side) -> tuple[Row, str | None]:
        """(the figures of `side` over `base`, why it is not kept; None where it is)."""
        row = gain(base, side)
        parity = gain(self._sides[ARTICLE.name], side)["parity"]
        reason = why_dropped(row, parity)
        if reason == NOISE and (noted := flags(side) or flags(base)):
            reason = f"{reason} ({'; '.join(noted)})"
        return row, reason

    def _confirm(self) -> Found:
        """Race what was kept against the article's loop, and give it up where it is not faster."""
        if not any(trial.row is not None for trial in self._trials):
            beyond = any(trial.outcome in BEYOND_THE_BUDGET for trial in self._trials)
            reason = (
                "the budget holds no race; give a larger --budget" if beyond else "no candidate could be measured"
            )
            return Found(recipe=ARTICLE, tried=False, confirmed=False, reason=reason)
        if not self.kept:
            return Found(recipe=ARTICLE)
        best = recipe_of(self.kept)
        try:
            sides = self.racing.run([best, ARTICLE], REPLICATES)
        except NotMeasured as error:
            return Found(recipe=ARTICLE, reason=f"the last race failed: {error.reason}")
        row, reason = self._judged(sides[ARTICLE.name], sides[best.name])
        return Found(recipe=ARTICLE, reason=reason) if reason else Found(recipe=best, row=row)

    def _interrupted(self, by: str) -> Found:
        """What was kept so far, against the article's loop of an earlier race: neither paired nor confirmed."""
        best = recipe_of(self.kept)
        if not self.kept:
            return Found(recipe=ARTICLE, confirmed=False, interrupted=by)
        base, side = self._sides[ARTICLE.name], self._sides[best.name]
        found = speedup(*([one.sample_seconds(number) for number in one.ok] for one in (base, side)), paired=False)
        row = gain(base, side) | {"speedup": found.ratio, "low": found.low, "high": found.high}
        if found.low is None or found.low <= 1:
            reason = "it was not faster than the article's loop of the first race beyond the noise"
            return Found(recipe=ARTICLE, confirmed=False, interrupted=by, reason=reason)
        return Found(recipe=best, row=row, confirmed=False, interrupted=by)


def why_dropped(row: Row, parity: str) -> str | None:
    """Why a candidate with these figures is not kept; None where it is. `parity` is that with the article's loop."""
    if row["speedup"] is None or row["low"] is None:
        return row["reason"]
    if not parity.startswith("same"):
        return f"the losses are not shown to be the article's: {parity}"
    if row["low"] <= 1:
        return "slower" if row["high"] < 1 else NOISE
    if row["job_speedup"] is None:
        return "the whole job cannot be projected"
    if row["job_speedup"] < 1:
        jobs = " → ".join(duration(row[name]) for name in ("article_job_seconds", "job_seconds"))
        return f"a step is faster, and the whole job is not: {jobs}"
    return None
