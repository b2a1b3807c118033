"""Did two devices compute the same training? Judged on the losses of its first steps.

Later steps are not judged: a change of 1e-7 in the weights of a small convolutional network grows to 3e-4
in 100 steps and to 5e-2 in 938, so that two correct devices drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

COMPARED_STEPS = 32

TOLERANCES = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Precision → the relative gap of a loss that is still the same.

fp32: rounding is 6e-8, and 32 steps let it grow by some thousand times at most. tf32 and fp16 keep 10 bits
of a mantissa, so that one rounding is 5e-4; bf16 keeps 7, 4e-3. There a loss sums over many roundings of
either sign, and the training grows what is left: about 20 and 13 single roundings are allowed. That is
wide: a wrong batch order shows, a subtle fault does not; fp32 is where parity is judged sharply.
"""

SMALLEST_SCALE = 0.01
"""A smaller loss is compared on this scale: near 0 the rounding of a log-softmax is absolute."""


NOT_ALIKE = "it draws random numbers that cannot be drawn alike: in compiled code, or by a generator of its own"
"""Why a pass apart, in which nothing is random, may have no losses."""


@dataclass(frozen=True, kw_only=True)
class Parity:
    """`largest_gap` is relative to the baseline's loss, over the `compared` steps; steps count from 1."""

    status: Literal["same", "differs", "not judged"]
    largest_gap: float | None = None
    first_step_outside: int | None = None
    compared: int = 0
    reason: str | None = None

    def __str__(self) -> str:
        """For people, such as "same (32 steps, largest gap 3e-06)" or "differs at step 5 (largest gap
        0.02)".
        """
        if self.status == "not judged":
            return f"not judged: {self.reason}"
        if self.status == "same":
            steps = "1 step" if self.compared == 1 else f"{self.compared} steps"
            return f"same ({steps}, largest gap {self.largest_gap:.1g})"
        gap = self.reason if self.largest_gap is None else f"largest gap {self.largest_gap:.2g}"
        return f"differs at step {self.first_step_outside} ({gap})"


def not_alike(*without_dropout: Sequence[float | None] | None) -> Parity | None:
    """Not judged, where a device has no losses of the pass in which nothing is random; None where that is no reason.

    A device that needed no such pass has None.
    """
    empty = any(losses is not None and not losses for losses in without_dropout)
    return Parity(status="not judged", reason=NOT_ALIKE) if empty else None


def looser(precision: str | None, other: str | None) -> str | None:
    """Of two precisions the one with the wider tolerance: what two trainings of unlike precision are judged by."""
    return max((precision, other), key=lambda name: TOLERANCES.get(name or "", math.inf))


def parity(
    baseline_losses: Sequence[float | None], losses: Sequence[float | None], *, precision: str | None = "fp32"
) -> Parity:
    """Compare the first min(32, n) losses of two devices, in the order of their training steps → Parity.

    A loss that is no number on one side alone differs; one that is none on both is not judged.
    """
    tolerance = TOLERANCES.get(precision or "")
    if tolerance is None:
        return Parity(status="not judged", reason=f"no tolerance is known for the precision {precision}")
    compared = min(COMPARED_STEPS, len(baseline_losses), len(losses))
    if compared == 0:
        return Parity(status="not judged", reason="no losses were recorded")
    largest, outside = 0.0, None
    for step, (base, loss) in enumerate(zip(baseline_losses, losses, strict=False), start=1):
        if step > compared:
            break
        known = [value is not None and math.isfinite(value) for value in (base, loss)]
        if not all(known):
            return _without_number(step, any(known), largest, outside, compared)
        gap = abs(base - loss) / max(abs(base), SMALLEST_SCALE)
        largest = max(largest, gap)
        if gap > tolerance and outside is None:
            outside = step
    return Parity(
        status="same" if outside is None else "differs",
        largest_gap=largest,
        first_step_outside=outside,
        compared=compared,
        reason=None if outside is None else f"the tolerance is {tolerance:g} at {precision}",
    )


def _without_number(step: int, one_side: bool, largest: float, outside: int | None, compared: int) -> Parity:
    if outside is not None:
        return Parity(status="differs", largest_gap=largest, first_step_outside=outside, compared=compared)
    if one_side:
        reason = "a loss is no number on one device alone"
        return Parity(status="differs", first_step_outside=step, compared=compared, reason=reason)
    return Parity(status="not judged", compared=compared, reason=f"the loss is no number at step {step}")
