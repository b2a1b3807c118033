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

SHADES = (PAGE, PANEL, INK, SOFT, LINE, CPU, ACCELERATOR)


def device_shade(device: str) -> Shade:
    """The colour of a device: one for the CPU, one for every accelerator (the labels tell these apart)."""
    return CPU if device == "cpu" else ACCELERATOR
