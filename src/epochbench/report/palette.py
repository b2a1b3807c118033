"""The colours of the page and its charts, each with the one that replaces it on a dark page.

A chart is drawn in the light colours; its SVG then names each by its CSS variable, so that one chart serves
both themes. The two device colours are of seaborn's "colorblind" palette, with a contrast of 3:1 or more.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shade:
    """One colour: the CSS variable that holds it, and its value on a light and on a dark page."""

    variable: str
    light: str
    dark: str


PAGE = Shade(variable="--page", light="#ffffff", dark="#14171b")
PANEL = Shade(variable="--panel", light="#f5f6f8", dark="#1c2026")
INK = Shade(variable="--ink", light="#1c2024", dark="#e7e9ec")
SOFT = Shade(variable="--soft", light="#59626d", dark="#a5adb8")
LINE = Shade(variable="--line", light="#dfe3e8", dark="#323941")
CPU = Shade(variable="--cpu", light="#0173b2", dark="#56b4e9")
ACCELERATOR = Shade(variable="--accelerator", light="#d55e00", dark="#de8f05")
ACCELERATOR_INK = Shade(variable="--accelerator-ink", light="#a84a00", dark="#e69f2e")
"""For words: the accelerator's own colour is too pale to be read on a light page."""

PHASE_SHADES = {
    "waiting": Shade(variable="--waiting", light="#8c8c8c", dark="#c3c8cf"),
    "transfer": Shade(variable="--transfer", light="#992e87", dark="#e667d0"),
    "forward": Shade(variable="--forward", light="#0a4a3c", dark="#3ee09a"),
    "backward": Shade(variable="--backward", light="#08a657", dark="#067a5c"),
    "optimizer": Shade(variable="--optimizer", light="#6b5000", dark="#937600"),
    "reading": Shade(variable="--reading", light="#c06de8", dark="#8a5cff"),
}
"""None is a device's colour. Any two differ, to the three kinds of colour-blind eyes too, in both themes."""

SHADES = (PAGE, PANEL, INK, SOFT, LINE, CPU, ACCELERATOR, ACCELERATOR_INK, *PHASE_SHADES.values())


def device_shade(device: str) -> Shade:
    """The colour of a device: one for the CPU, one for every accelerator (the labels tell these apart)."""
    return CPU if device == "cpu" else ACCELERATOR


def device_ink(device: str) -> Shade:
    """The colour of words about a device."""
    return CPU if device == "cpu" else ACCELERATOR_INK
