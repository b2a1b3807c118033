"""Hostile text in every field of a run, on the pages in a real Chromium: it is text there and nothing more."""

import csv

import pytest

from epochbench.analysis.comparison import compare_files
from epochbench.records.store import load
from epochbench.report.compare_page import write_comparison_page
from epochbench.report.html import write_page
from epochbench.report.published import COLUMNS, FIGURES
from tests.hostile.hostile_text import HOSTILE, hostile_run
from tests.report.test_browser import browser, show

__all__ = ["browser"]

TOGETHER = 6
"""So many runs on one page: it shows 12 machines, and more texts on a page are a page less to open."""
GROUPS = [list(HOSTILE)[start : start + TOGETHER] for start in range(0, len(HOSTILE), TOGETHER)]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """(kind of page, place of the group) → its path, made once."""
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def make(kind, place):
        if (kind, place) not in made:
            files = [
                hostile_run(folder / f"{place}-{number}.jsonl", HOSTILE[name])
                for number, name in enumerate(GROUPS[place])
            ]
            made[kind, place] = _WRITE[kind](folder / f"{kind}-{place}.html", files, GROUPS[place])
        return made[kind, place]

    return make


def _report(path, files, names):
    published = path.with_suffix(".csv")
    with published.open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for name in names:
            text = HOSTILE[name][:2000]
            for device, minutes in (("cpu", 6), ("cuda", 2)):
                row = dict.fromkeys(COLUMNS, text) | dict.fromkeys(FIGURES, minutes) | {"device_type": device}
                rows.writerow(row)
    return write_page(load(*files), path, published=published, prices={"cpu": 1.0, "cuda": 2.0})


def _compare(path, files, names):
    """Each beside a run with the same texts of another machine, so that there is a ratio."""
    others = [
        hostile_run(
            file.with_name(f"other-{file.name}"), HOSTILE[name], run_id=f"other {name}", label=f"other {name}"
        )
        for file, name in zip(files, names, strict=True)
    ]
    return write_comparison_page(compare_files([str(file) for file in [*files[:3], *others[:3]]]), path)


_WRITE = {"report": _report, "compare": _compare}

HARMED = """
const known = new Set(['HTML', 'HEAD', 'META', 'LINK', 'TITLE', 'STYLE', 'BODY', 'HEADER', 'MAIN', 'FOOTER',
  'SECTION', 'ARTICLE', 'DIV', 'SPAN', 'P', 'H1', 'H2', 'H3', 'UL', 'OL', 'LI',
  'TABLE', 'CAPTION', 'THEAD', 'TBODY', 'TR', 'TH',
  'TD', 'BDI', 'CODE', 'B', 'STRONG', 'A', 'BUTTON', 'FIGURE', 'FIGCAPTION', 'SCRIPT']);
const wrong = [];
for (const element of document.querySelectorAll('*')) {
  const svg = element.namespaceURI === 'http://www.w3.org/2000/svg';
  if (!svg && !known.has(element.tagName)) wrong.push(`element ${element.tagName}`);
  if (svg && ['script', 'a', 'image', 'foreignObject', 'animate', 'set'].includes(element.tagName))
    wrong.push(`svg ${element.tagName}`);
  for (const {name, value} of element.attributes) {
    if (name.startsWith('on')) wrong.push(`handler ${name}`);
    if (/^(src|srcset|action|formaction|srcdoc|poster)$/.test(name)) wrong.push(`${name}=${value}`);
    if (/href$/.test(name) && !/^(#|data:,$|data:text\\/csv)/.test(value)) wrong.push(`${name}=${value}`);
  }
}
if (window.pwned !== undefined) wrong.push(`a script ran: ${window.pwned}`);
if (document.querySelectorAll('script').length !== arguments[0]) wrong.push('another script');
if (document.querySelectorAll('style').length !== 1) wrong.push('another style');
if (document.querySelectorAll('meta').length !== 5 || document.querySelectorAll('link').length !== 1)
  wrong.push('another meta or link');
if (getComputedStyle(document.body).display === 'none') wrong.push('the page is hidden');
return [...new Set(wrong)];
"""
WIDE = """
const root = document.documentElement;
const beyond = [...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll, svg, .unseen, .bars'))
  .filter(one => one.getBoundingClientRect().right > root.clientWidth + 1)
  .map(one => `${one.tagName}.${one.className}: ${[...one.textContent.trim()].slice(0, 30).join("")}`);
return [root.scrollWidth, root.clientWidth, document.body.scrollWidth, [...new Set(beyond)].slice(0, 5)];
"""


@pytest.mark.parametrize("place", range(len(GROUPS)))
@pytest.mark.parametrize(("kind", "scripts"), [("report", 1), ("compare", 0)])
def test_hostile_text_is_text_in_a_browser_and_the_layout_holds(browser, pages, kind, scripts, place):
    path = pages(kind, place)
    for width in (1200, 400):
        requests, console = show(browser, path, width=width)
        assert console == []
        assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
        assert browser.execute_script(HARMED, scripts) == []
        assert browser.title.endswith("· epochbench")
        full, seen, body, beyond = browser.execute_script(WIDE)
        assert full <= seen <= width, beyond
        assert body <= width, beyond


@pytest.mark.parametrize("kind", ["report", "compare"])
def test_the_text_is_on_the_page_as_it_is_written(browser, pages, kind):
    """Else the test above would find nothing wrong with an empty page."""
    show(browser, pages(kind, 0))
    text = browser.execute_script("return document.body.textContent")
    for name in GROUPS[0][:3]:
        assert HOSTILE[name] in text


def test_clicks_and_keys_on_a_hostile_page_run_nothing_of_it(browser, pages):
    show(browser, pages("report", 0))
    browser.execute_script(
        "for (const one of document.querySelectorAll('button')) one.click();"
        "for (const one of document.querySelectorAll('bdi, th, td, text')) {"
        "  one.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})); one.focus && one.focus(); }"
    )
    assert browser.execute_script(HARMED, 1) == []
    assert browser.get_log("browser") == []
