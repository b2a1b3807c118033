"""Texts that were written to do harm, and runs that have one of them in every text that the schema knows.

The schema is walked, so that a field or a kind of record that is added to it is filled here too.
"""

import json
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from epochbench.records import schema
from tests.runfiles import run_lines, write_lines

LONGEST = 200
HOSTILE = {
    "script": "<script>window.pwned = 1; document.title = 'pwned'</script>",
    "end of a script": "</script><script>window.pwned = 2</script>",
    "end of a style": "</style><style>*{display:none}</style><script>window.pwned = 3</script>",
    "event handler": "<img src=x onerror=window.pwned=4>",
    "attribute": "\" onmouseover=\"window.pwned=5\" autofocus onfocus=\"window.pwned=5\" x=\"",
    "single quotes": "' onload='window.pwned=6' style='display:none",
    "svg": "<svg onload=window.pwned=7><animate onbegin=window.pwned=7 attributeName=x dur=1s></svg>",
    "svg link": '<svg><a xlink:href="javascript:window.pwned=8"><text y="20">x</text></a></svg>',
    "address": "javascript:window.pwned=9//",
    "markdown address": "[x](javascript:window.pwned=10) ![x](https://example.com/x.png)",
    "data address": "data:text/html,<script>window.pwned=11</script>",
    "frame": '<iframe srcdoc="<script>parent.pwned=12</script>" src=https://example.com></iframe>',
    "request": "<link rel=stylesheet href=https://example.com/x.css><img src=//example.com/x.png>",
    "base and refresh": '<base href="https://example.com/"><meta http-equiv=refresh content="0;url=https://example.com">',
    "form": '<form action=https://example.com><input name=x autofocus><button formaction=javascript:alert(1)>',
    "comment": "<!-- --!> <!--><img src=x onerror=window.pwned=13>-->",
    "cdata": "]]><![CDATA[<script>window.pwned=14</script>]]>",
    "template": "{{ 7 * 7 }} {% include '/etc/passwd' %} ${7*7} #{7*7} <%= 7*7 %> {{constructor.constructor('1')()}}",
    "css": "red; } body { display: none } /* expression(alert(1)) url(https://example.com/x.png) \\000022",
    "entities": "&lt;script&gt;window.pwned=15&lt;/script&gt; &#x3C;b&#x3E; &amp;lt; &#0; &bogus;",
    "right to left": "abc\u202eEXE.gnp\u202c \u2066hidden\u2069 \u200fx\u061c שלום עולם مرحبا",
    "zero width": "w\u200bo\u200cr\u200dd\u2060s\ufeff \u00ad\u034f\u180e\u115f\u3164",
    "combining": "Z" + "\u0301\u0316\u0489" * 300,
    "letters without a space": "W" * 10_000,
    "wide letters": "機械学習" * 60 + "｜" * 40,
    "emoji": "🚀👩‍👩‍👧‍👦🏳️‍🌈🇺🇸👍🏿" * 12,
    "control": "a\x00b\x01c\x07d\x08e\x7ff\x85g\x9b31mh",
    "escapes": "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;https://example.com\x07x\x1b]8;;\x07\x1bc\x1b[?1049h\r\x1b[1A",
    "line ends": "one\ntwo\r\nthree\rfour\u2028five\u2029six\x0bseven\x0ceight\ttab",
    "formula": "=cmd|' /C calc'!A0",
    "formula of the web": '@SUM(1+1)*IMPORTXML("https://example.com","//x")',
    "path": "../../../../etc/passwd\\..\\..\\con.txt/~/.ssh/id_rsa%00.html",
    "quotes": "\"'`´‘’“”«» \\\" \\' `id` $(id) ; rm -rf / | & > < * ?",
    "math": "$x^2$ $\\frac{1}{0}$ \\alpha _a_ **b** ~~c~~ | d | e |",
    "markup of rich": "[bold red]x[/bold red] [link=https://example.com]y[/] :smile: [@click=app.bell]z[/]",
    "noncharacters": "\ufffe\uffff\ufdd0\U0001fffe\ue000\U000e0041\ufff9",
}  # fmt: skip

KEPT = {("RunRecord", "started_at"), ("MeasurementRecord", "sweep_of")}
"""Not filled: a time has to be one, and what is a point of a sweep is on no other part of the page."""

_TIMES = {"cpu": [8.0, 8.3, 7.8, 8.1], "cuda": [1.0, 1.02, 0.99, 1.01]}
_PHASES = {
    "phase_steps": 20, "phase_pass_seconds": 1.0, "waiting_seconds": 0.6, "transfer_seconds": 0.05,
    "forward_seconds": 0.1, "backward_seconds": 0.15, "optimizer_seconds": 0.05, "reading_seconds": 0.05,
    "compute_only_steps": 10, "compute_only_seconds": 0.3, "flops_per_step": 1e8, "matmul_flops_per_second": 1e11,
    "energy_joules": 100.0,
}  # fmt: skip


def kinds():
    """The kinds of records that the schema has: word → model."""
    return {
        get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(get_args(schema.AnyRecord)[0])
    }


def filled(model, record, text):
    """The record with the text in every text of the model; other fields as they are, or an example where needed."""
    found = dict(record)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if (model.__name__, name) in KEPT:
            continue
        if name == "device" and record.get("device") in ("cpu", "cuda"):
            continue
        value = _value(field.annotation, bool(field.metadata), text, found.get(key), needed=field.is_required())
        if value is not None:
            found[key] = value
    found["new field of text"] = text
    found[cut(text)] = text
    return found


def cut(text):
    return text[:LONGEST] or "x"


def _value(kind, bounded, text, had, *, needed):
    """What a field of that annotation gets, None where it keeps what it had."""
    origin, inner = get_origin(kind), [one for one in get_args(kind) if one is not type(None)]
    if origin is Annotated:
        return _value(inner[0], True, text, had, needed=needed)
    if origin in (Union, UnionType):
        return next(
            (made for one in inner if (made := _value(one, bounded, text, had, needed=needed)) is not None), None
        )
    if kind is str:
        return cut(text) if bounded else text
    if kind is Any or origin is Literal:
        return inner[0] if needed and had is None else None
    if origin is tuple:
        if isinstance(inner[0], type) and issubclass(inner[0], BaseModel):
            return [filled(inner[0], one, text) for one in [*(had or ()), {}]]
        made = _value(inner[0], False, text, None, needed=False)
        return None if made is None else [made, made]
    if origin is dict:
        return {cut(text): text, **(had or {})} | ({"list": [text], "devices": [text]} if inner[1] is Any else {})
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return filled(kind, had or {}, text)
    return {int: 1, float: 1.0, bool: False}[kind] if needed and had is None else None


def lines(text, *, run_id=None, label=None):
    """The lines of a run with the text wherever a text may be: a race, a device that was skipped, a sweep, and a
    record of each kind that the helpers for tests do not know yet.
    """
    raced = run_lines(workloads={"w": _TIMES}, skipped={"xpu": "no driver"}, changes={("w",): _PHASES})
    failed = run_lines(workloads={"w": {"other": [3.0, 3.1]}}, failed={("w", "other", 1): ("failed", "x")})
    swept = run_lines(
        workloads={f"size {size}": {"cpu": [size, 1.1 * size], "cuda": [3.0, 3.1]} for size in (1, 4, 16)},
        changes={(f"size {size}",): {"sweep_value": float(size)} for size in (1, 4, 16)},
    )
    known, found = kinds(), []
    for line in [*raced[:-1], *failed[1:-1]]:
        found.append(filled(known[line["kind"]], line, text))
    for line in swept[1:-1]:
        of_sweep = {"sweep_of": cut(text)} if line["kind"] == "measurement" else {}
        found.append(filled(known[line["kind"]], line, text) | {"workload": line["workload"]} | of_sweep)
    written = {line["kind"] for line in found}
    for word, kind in known.items():
        if word not in written | {"end"}:
            found.append(filled(kind, {"kind": word}, text))
    found.append(filled(known["end"], raced[-1] | {"status": "failed"}, text))
    found[0] |= {"run_id": run_id or cut(text), "label": text if label is None else label, "resumes": cut(text)}
    return found


def hostile_run(path, text, **names):
    return write_lines(path, [json.dumps(line) for line in lines(text, **names)])


def texts_of(model, prefix=""):
    """The names of all the text fields of a model and of the models in it, by the annotations alone."""
    found = set()
    for name, field in model.model_fields.items():
        found |= _texts(field, field.annotation, f"{prefix}{name}")
    return found


def _texts(field, kind, name):
    assert isinstance(field, FieldInfo)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return texts_of(kind, f"{name}.")
    if kind is str:
        return {name}
    if get_origin(kind) is Literal:
        return set()
    return set().union(*(_texts(field, one, name) for one in get_args(kind)))
