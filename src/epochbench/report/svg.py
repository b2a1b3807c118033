"""A matplotlib figure as SVG inside a page: themed by it, with its own ids and real text, always the same."""

from __future__ import annotations

import io
import re
import warnings
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

from epochbench.report.palette import SHADES

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_HREF = f"{{{_XLINK}}}href"
_COLOUR = re.compile("|".join(re.escape(shade.light) for shade in SHADES))
_VARIABLE = {shade.light: f"var({shade.variable}, {shade.light})" for shade in SHADES}
_REFERENCE = re.compile(r"#([\w-]+)(?=\))")
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")


def to_svg(figure: Figure, *, name: str, title: str, description: str) -> str:
    """The figure as one <svg> element that begins its ids with `name` and reads out title and description.

    Text stays text, drawn in the page's own font. Colours of the palette become its CSS variables.
    """
    root = ElementTree.fromstring(_drawn(figure, salt=name))
    used = {reference for element in root.iter() for reference in _references(element)}
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        _adapt(element, name, used)
    _describe(root, name, title, description)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _drawn(figure: Figure, *, salt: str) -> str:
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}), warnings.catch_warnings():
        # The browser draws the text, with fonts of its own for what matplotlib's lacks.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def _references(element: ElementTree.Element) -> list[str]:
    found = [reference for value in element.attrib.values() for reference in _REFERENCE.findall(value)]
    return [*found, element.get(_HREF, "#")[1:]]


def _adapt(element: ElementTree.Element, name: str, used: set[str]) -> None:
    """Ids and references get the prefix (ids that nothing refers to go); colours become variables."""
    for key, value in list(element.attrib.items()):
        if key == "id":
            if value in used:
                element.set(key, f"{name}-{value}")
            else:
                del element.attrib[key]
        elif key == _HREF:
            element.set(key, f"#{name}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{name}-"))
        elif key in ("style", "fill", "stroke"):
            element.set(key, _COLOUR.sub(lambda match: _VARIABLE[match.group()], value))
        elif key in ("d", "x", "y"):  # hundredths of a pixel are as fine as anybody sees
            element.set(key, _LONG_NUMBER.sub(r"\1", value))


def _describe(root: ElementTree.Element, name: str, title: str, description: str) -> None:
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("class", "chart")
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-description")
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(f"{{{_SVG}}}{tag}")
        element.set("id", f"{name}-{'title' if tag == 'title' else 'description'}")
        element.text = text
        root.insert(place, element)
