"""What a recipe gains over the article's own loop, on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochbench.analysis.gate import ACROSS_RECIPES, how_it_ended, unequal, unusable
from epochbench.analysis.parity import Parity, looser, not_alike, parity
from epochbench.analysis.projection import job
from epochbench.analysis.sides import Side, finite, races
from epochbench.analysis.speedup import Speedup, speedup, without

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

ARTICLE = "article"

KEY = ("workload", "machine", "data", "device", "recipe")
COLUMNS = {
    **dict.fromkeys((*KEY, "settings"), "object"),
    **dict.fromkeys(("article_step_seconds", "step_seconds"), "float64"),
    **dict.fromkeys(("article_samples_per_second", "samples_per_second"), "float64"),
    **dict.fromkeys(("speedup", "low", "high"), "float64"),
    "replicates": "Int64",
    **dict.fromkeys(("verdict", "reason", "parity"), "object"),
    **dict.fromkeys(("article_job_seconds", "job_seconds", "job_speedup"), "float64"),
    **dict.fromkeys(("left_out", "run"), "object"),
}


def gains(results: Results, *, confidence: float = 0.95) -> pd.DataFrame:
    """A row a workload × machine × device × recipe other than the article's, from the newest run that has both.

    `speedup` is of samples a second in the timed epochs, paired by replicate, with the verdicts of `speedup()`;
    `job_speedup` is of the whole job, in which reading, compiling and caching count. A recipe that could not be
    done has a row with the reason.
    """
    import pandas as pd

    by_recipe: dict[tuple[str, str], dict[tuple[str, str], Side]] = {}
    for (run, workload, recipe), sides in races(results).items():
        for device, side in sides.items():
            by_recipe.setdefault((run, workload), {})[recipe, device] = side
    newest: dict[tuple[Any, ...], tuple[Side, Side]] = {}
    for (_, workload), found in by_recipe.items():
        for (recipe, device), side in found.items():
            base = found.get((ARTICLE, device))
            if recipe != ARTICLE and base is not None:
                newest[workload, side.machine, base.data, device, recipe] = base, side
    rows = [
        dict(zip(KEY, key, strict=True)) | {"run": side.run} | gain(base, side, confidence=confidence)
        for key, (base, side) in newest.items()
    ]
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


def same_training(base: Side, side: Side) -> bool:
    """Whether a recipe trained what the article's did: the same batches, nothing cached, and the same losses."""
    pairs = [replicate for replicate in side.ok if replicate in base.ok]
    other = base.fact("batch_size") != side.fact("batch_size") or side.fact("caching_samples")
    return (
        not other and not unequal(base, side, pairs, ACROSS_RECIPES) and _parity(base, side, pairs).status == "same"
    )


def gain(base: Side, side: Side, *, confidence: float = 0.95) -> dict[str, Any]:
    """What `side` gains over `base`, whichever their recipes: a row of `gains` without its key."""
    pairs = [replicate for replicate in side.ok if replicate in base.ok]
    found = _judge(base, side, pairs, confidence)
    jobs = [job(one).job_seconds if one.ok else None for one in (base, side)]
    steps = [one.step_seconds for one in (base, side)]
    rates = [None if unusable(one) else one.samples_per_second for one in (base, side)]
    return {
        "settings": _settings(base, side),
        "article_step_seconds": steps[0],
        "step_seconds": steps[1],
        "article_samples_per_second": rates[0],
        "samples_per_second": rates[1],
        "speedup": found.ratio,
        "low": found.low,
        "high": found.high,
        "replicates": found.replicates,
        "verdict": found.verdict,
        "reason": found.reason,
        "parity": str(_parity(base, side, pairs)),
        "article_job_seconds": jobs[0],
        "job_seconds": jobs[1],
        "job_speedup": finite(jobs[0] / jobs[1]) if jobs[0] and jobs[1] else None,
        "left_out": "; ".join(side.fact("recipe_left_out") or ()),
    }


def _judge(base: Side, side: Side, pairs: list[int], confidence: float) -> Speedup:
    if not side.tried and side.measurements:
        return without(0, "not measured", how_it_ended(side.measurements[-1]).removeprefix("skipped: "))
    for one in (side, base):
        if problem := unusable(one):
            return without(0, "invalid", problem)
    if problem := unequal(base, side, pairs, ACROSS_RECIPES):
        return without(0, "invalid", f"not comparable: {problem}")
    times = [[one.sample_seconds(replicate) for replicate in pairs] for one in (base, side)]
    return speedup(*times, paired=True, confidence=confidence)


def _parity(base: Side, side: Side, pairs: list[int]) -> Parity:
    if not pairs:
        return Parity(status="not judged", reason="there is no block in which both ended well")
    if base.fact("batch_size") != side.fact("batch_size"):
        return Parity(status="not judged", reason=f"another training: batches of {side.fact('batch_size')}")
    if base.fact("batches_hash") != side.fact("batches_hash"):
        return Parity(status="not judged", reason="worker processes draw other samples at random")
    losses = [one.fact("losses_without_dropout") for one in (base, side)]
    if (unlike := not_alike(*losses)) is not None:
        return unlike
    if None in losses:
        losses = [one.ok[pairs[0]]["losses"] for one in (base, side)]
    return parity(*losses, precision=looser(base.fact("precision"), side.fact("precision")))


def _settings(base: Side, side: Side) -> str:
    """In what a recipe differs from the article's, such as "resident, without read_loss_each_step"; "" if unknown."""
    of_base, of_side = (one.fact("recipe_settings") for one in (base, side))
    if of_base is None or of_side is None:
        return ""
    new = {name: value for name, value in sorted(of_side.items()) if of_base.get(name) != value}
    words = [name if value is True else f"{name} {value}" for name, value in new.items()]
    return ", ".join([*words, *(f"without {name}" for name in sorted(of_base) if name not in of_side)])
