"""The page in a real Chromium: nothing goes wrong, nothing leaves the file, and it fits where it is read."""

import base64
import json
import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from epochbench.report.formats import FORMATS
from epochbench.report.html import write_page
from epochbench.report.palette import PAGE
from tests.runfiles import make_run

RESULTS = Path(__file__).parents[2] / "results"
PUBLISHED = RESULTS / "published.csv"
COMMITTED = RESULTS / "runs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
)  # fmt: skip

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("Chromium and chromedriver are not both installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


RACE = {"cpu": [8, 8.3, 7.8, 8.1], "cuda": [1, 1.02, 0.99, 1.01]}
PHASES = {
    "phase_steps": 20, "phase_pass_seconds": 1.0, "waiting_seconds": 0.4, "transfer_seconds": 0.05,
    "forward_seconds": 0.2, "backward_seconds": 0.25, "optimizer_seconds": 0.05, "reading_seconds": 0.05,
    "compute_only_steps": 10, "compute_only_seconds": 0.3, "flops_per_step": 1e8, "matmul_flops_per_second": 1e11,
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """name → path of a page: the run of this repository, two machines, hostile names, a CPU alone, nothing."""
    folder = tmp_path_factory.mktemp("pages")
    hostile = ("<script>document.title = 'pwned'</script>", "$x$", "n" * 200, "שלום", "🚀", "µ×", "機械学習" * 40)
    slow = {"cpu": [1e-5, 1.02e-5, 0.99e-5, 1.01e-5], "cuda": [2e-5, 2.1e-5, 1.9e-5, 2e-5]}
    runs = {
        "committed": [COMMITTED],
        "two": [
            make_run(
                folder / "a.jsonl", label="Colab", changes={("cnn", "cpu", 0): PHASES, ("cnn", "cuda", 0): PHASES},
                workloads={"cnn": RACE, "resnet50_transfer": RACE, "tabular": slow},
            ),
            make_run(folder / "b.jsonl", label="desk", workloads={"cnn": RACE}, machine={"cpu_capability": "AVX512"}),
        ],
        "hostile": [
            make_run(
                folder / "c.jsonl", label="L" * 200, workloads=dict.fromkeys((name[:200] for name in hostile), RACE),
                skipped={"xpu": "<img src=https://example.com/x.png onerror=alert(1)> " * 20},
                changes={("$x$", "cpu", 0): PHASES, ("$x$", "cuda", 0): PHASES},
                machine={"thread_environment": {"OMP_NUM_THREADS": "<b>8</b>" + "9" * 300}},
                options={"devices": ["cpu", "<script>alert(1)</script>"], "seed": "x" * 300},
            )
        ],
        "alone": [make_run(folder / "d.jsonl", workloads={"cnn": {"cpu": [8, 8]}}, skipped={"cuda": "no"})],
        "nothing": [],
    }  # fmt: skip
    return {
        name: write_page(load(*files), folder / f"{name}.html", published=PUBLISHED) for name, files in runs.items()
    }


NAMES = ["committed", "two", "hostile", "alone", "nothing"]


def show(browser, path, *, width=1280, scheme="light", media="screen"):
    """Open a page in a window of that width and theme; its requests and its console, as lists."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(path.as_uri())
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [
        event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
    ]
    return requests, browser.get_log("browser")


@pytest.mark.parametrize("name", NAMES)
def test_the_page_opens_without_a_console_message_and_requests_nothing_but_itself(browser, pages, name):
    requests, console = show(browser, pages[name])
    assert console == []
    assert pages[name].as_uri() in requests
    assert [url for url in requests if not url.startswith("data:")] == [pages[name].as_uri()]
    assert browser.title == "Is it worth training on the GPU? · epochbench"


def test_headings_tables_and_charts_are_there_and_visible(browser, pages):
    show(browser, pages["two"])
    headings = [heading.text for heading in browser.find_elements(By.TAG_NAME, "h2")]
    expected = ["The answer for each training", "Speedup and whole-job time", "Where the time goes",
                "Was it the same training?", "How steady was it?", "Machines", "Published by others",
                "Method and data"]  # fmt: skip
    assert [heading for heading in headings if heading in expected] == expected
    tables = browser.find_elements(By.TAG_NAME, "table")
    assert len(tables) >= 8
    charts = browser.find_elements(By.CSS_SELECTOR, "svg[role=img]")
    assert len(charts) == 12  # speedup, time, phases, rates, and two of each of the four races
    for element in [*tables, *charts]:
        assert element.is_displayed()
        assert element.size["width"] > 200
        assert element.size["height"] > 50
    assert len(browser.find_elements(By.CSS_SELECTOR, "article")) == 4


def test_with_a_cpu_alone_the_page_says_how_to_come_by_a_gpu(browser, pages):
    for name in ("committed", "alone"):
        show(browser, pages[name])
        said = browser.find_element(By.CSS_SELECTOR, ".add").text
        assert "What a run with a GPU would add" in said
        assert "bench/colab.ipynb" in said
        assert "Speedup" not in [heading.text for heading in browser.find_elements(By.TAG_NAME, "h2")]


@pytest.mark.parametrize("width", [320, 360, 390, 768, 1280])
@pytest.mark.parametrize("name", NAMES)
def test_the_page_never_scrolls_sideways(browser, pages, name, width):
    show(browser, pages[name], width=width)
    sizes = browser.execute_script(
        "const root = document.documentElement;return [root.scrollWidth, root.clientWidth, document.body.scrollWidth]"
    )
    assert sizes[0] <= sizes[1] <= width
    assert sizes[2] <= width


def test_on_a_phone_a_wide_table_scrolls_in_its_own_box_and_charts_fit(browser, pages):
    show(browser, pages["two"], width=390)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')]"
        ".map(box => [box.scrollWidth, box.clientWidth, box.tabIndex])"
    )
    assert any(inner > outer for inner, outer, _ in boxes)
    assert all(outer <= 390 and focus == 0 for _, outer, focus in boxes)
    for chart in browser.find_elements(By.CSS_SELECTOR, "svg[role=img]"):
        assert 300 <= chart.size["width"] <= 390


@pytest.mark.parametrize(("scheme", "shade"), [("light", PAGE.light), ("dark", PAGE.dark)])
def test_the_page_and_the_text_of_its_charts_follow_the_theme(browser, pages, scheme, shade):
    show(browser, pages["two"], scheme=scheme)
    page, words, chart = browser.execute_script(
        "const css = (where, what) => getComputedStyle(document.querySelector(where))[what];"
        "return [css('html', 'backgroundColor'), css('html', 'color'), css('svg[role=img] text', 'fill')]"
    )
    red, green, blue = (int(shade[at : at + 2], 16) for at in (1, 3, 5))
    assert page == f"rgb({red}, {green}, {blue})"
    dark = scheme == "dark"
    assert (brightness(page) < 60) == dark
    assert (brightness(words) > 200) == dark
    assert (brightness(chart) > 120) == dark


def test_on_paper_the_page_is_light_even_where_the_screen_is_dark(browser, pages):
    show(browser, pages["two"], scheme="dark", media="print")
    page = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
    assert brightness(page) > 240
    cut = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter(box => getComputedStyle(box).overflowX != 'visible')"
    )
    assert cut == []
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf.startswith(b"%PDF")


def test_the_text_in_the_charts_stays_inside_of_them(browser, pages):
    for name in ("two", "hostile"):
        show(browser, pages[name])
        outside = browser.execute_script(
            "return [...document.querySelectorAll('svg[role=img]')].flatMap(svg => {"
            "  const frame = svg.getBoundingClientRect();"
            "  return [...svg.querySelectorAll('text')].filter(text => {"
            "    const box = text.getBoundingClientRect();"
            "    return box.left < frame.left - 2 || box.right > frame.right + 2"
            "  }).map(text => text.textContent)})"
        )
        assert outside == []


COLUMN = """
const [caption, header] = arguments;
const table = [...document.querySelectorAll('table')].find(one => one.caption.textContent.startsWith(caption));
const place = [...table.tHead.rows[0].cells].findIndex(head => head.textContent === header);
const head = table.tHead.rows[0].cells[place];
return [head, head.querySelector('button'), head.ariaSort,
        [...table.tBodies].flatMap(body => [...body.rows]).map(row => row.cells[place]?.textContent.trim())];
"""


GROUPS = """
const groups = [...document.querySelectorAll('tbody')].filter(body => body.rows[0].querySelector('[scope=rowgroup]'));
const heads = [...groups[0].closest('table').tHead.rows[0].cells];
const place = heads.findIndex(head => head.textContent.startsWith('In all'));
return groups.map(body => [body.rows[0].textContent.trim(),
                           [...body.rows].slice(1).map(row => row.cells[place].textContent.trim())]);
"""


def column(browser, caption, header):
    """A column of a table: its button, its aria-sort, its cells."""
    _, button, sorted_by, cells = browser.execute_script(COLUMN, caption, header)
    return button, sorted_by, cells


def test_a_table_sorts_by_click_numbers_as_numbers_and_what_is_missing_last(browser, pages):
    show(browser, pages["two"])
    button, sorted_by, before = column(browser, "Whole-job time", "Whole epoch (s)")
    assert sorted_by is None
    button.click()
    _, sorted_by, up = column(browser, "Whole-job time", "Whole epoch (s)")
    assert sorted_by == "ascending"
    numbers = [float(cell.replace(",", "")) for cell in up]
    assert numbers == sorted(numbers)
    assert sorted(up) == sorted(before)
    button.click()
    _, sorted_by, down = column(browser, "Whole-job time", "Whole epoch (s)")
    assert sorted_by == "descending"
    assert [float(cell.replace(",", "")) for cell in down] == sorted(numbers, reverse=True)

    for _ in range(2):
        button, _, _ = column(browser, "A training step", "Waiting (ms)")
        button.click()
        _, _, cells = column(browser, "A training step", "Waiting (ms)")
        assert cells[2:] == ["–"] * (len(cells) - 2)


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE])
def test_a_table_sorts_by_keyboard_and_one_column_at_a_time(browser, pages, key):
    show(browser, pages["two"])
    first, _, before = column(browser, "Speedup", "Workload")
    browser.execute_script("arguments[0].focus()", first)
    for direction in ("ascending", "descending"):
        browser.switch_to.active_element.send_keys(key)
        _, sorted_by, cells = column(browser, "Speedup", "Workload")
        assert sorted_by == direction
        assert cells == sorted(before, reverse=direction == "descending")
    second, _, _ = column(browser, "Speedup", "Machine")
    second.send_keys(key)
    assert column(browser, "Speedup", "Machine")[1] == "ascending"
    assert column(browser, "Speedup", "Workload")[1] is None


def test_sorting_keeps_the_order_of_equal_rows_and_the_groups_of_the_published_table(browser, pages):
    show(browser, pages["two"])
    _, _, machines = column(browser, "Speedup", "Machine")
    button, _, devices = column(browser, "Speedup", "Device")
    assert len(set(devices)) == 1
    button.click()
    button.click()
    assert column(browser, "Speedup", "Machine")[2] == machines
    groups = browser.execute_script(GROUPS)
    column(browser, "Published", "In all (minutes)")[0].click()
    after = browser.execute_script(GROUPS)
    assert [(name, sorted(cells)) for name, cells in after] == [(name, sorted(cells)) for name, cells in groups]
    for _, cells in after:
        known = [float(cell.replace(",", "")) for cell in cells if cell != "–"]
        assert known == sorted(known)
        assert cells[len(known) :] == ["–"] * (len(cells) - len(known))
    assert len(groups) >= 3


def test_without_its_script_the_page_is_whole(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, pages["two"])
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert browser.find_elements(By.TAG_NAME, "button") == []
    assert len(browser.find_elements(By.TAG_NAME, "table")) >= 8
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg[role=img]")) == 12


def test_the_csv_is_downloaded_from_the_page_itself(browser, pages, tmp_path):
    folder = str(tmp_path)
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": folder})
    show(browser, pages["two"])
    browser.find_element(By.CSS_SELECTOR, "a[download]").click()
    file = tmp_path / "epochbench-speedups.csv"
    WebDriverWait(browser, 30).until(lambda _: file.exists())
    runs = [pages["two"].parent / name for name in ("a.jsonl", "b.jsonl")]
    assert file.read_text("utf-8") == FORMATS["csv"](speedups(load(*runs)))
    assert browser.get_log("browser") == []


def test_a_csv_of_megabytes_is_downloaded_too(browser, pages, tmp_path):
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    show(browser, pages["two"])
    browser.execute_script(
        "const link = document.querySelector('a[download]');"
        "link.href = link.href.split(',')[0] + ',' + btoa('a,b\\n'.repeat(1e6)); link.click()"
    )
    file = tmp_path / "epochbench-speedups.csv"
    WebDriverWait(browser, 30).until(lambda _: file.exists())
    assert file.read_text("utf-8") == "a,b\n" * 1_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_all_text_has_the_contrast_of_4_5(browser, pages, name, scheme):
    show(browser, pages[name], scheme=scheme)
    pale = browser.execute_script(CONTRAST)
    assert pale == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_keeps_a_screen_reader_from_the_page(browser, pages, name):
    show(browser, pages[name])
    assert browser.execute_script(READABLE) == []


CONTRAST = """
const luminance = ([r, g, b]) => {
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const [red, green, blue] = [r, g, b].map(v => linear(v / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const numbers = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
const ground = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = numbers(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const pale = new Set();
let seen = 0;
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || element.closest('script, title, desc')) continue;
  const style = getComputedStyle(element);
  const front = luminance(numbers(element.closest('svg') ? style.fill : style.color));
  const back = luminance(ground(element));
  const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  seen += 1;
  if (ratio < 4.5) pale.add(`${element.tagName} ${ratio.toFixed(2)}: ${walker.currentNode.data.trim().slice(0, 40)}`);
}
return seen > 20 ? [...pale] : ['hardly any text was looked at'];
"""

READABLE = """
const wrong = [];
const check = (right, what) => { if (!right) wrong.push(what); };
const all = selector => [...document.querySelectorAll(selector)];
check(document.documentElement.lang === 'en', 'html without lang');
check(document.title, 'no title');
check(all('h1').length === 1, 'not one h1');
check(all('main').length === 1, 'not one main');
let level = 0;
for (const heading of all('h1, h2, h3, h4, h5, h6')) {
  const here = Number(heading.tagName[1]);
  check(here <= level + 1, `${heading.tagName} after h${level}: ${heading.textContent}`);
  check(heading.textContent.trim(), 'an empty heading');
  level = here;
}
const ids = all('[id]').map(element => element.id);
check(new Set(ids).size === ids.length, `ids twice: ${ids.filter((id, at) => ids.indexOf(id) !== at)}`);
for (const element of all('[aria-labelledby], [aria-describedby]')) {
  const names = ['aria-labelledby', 'aria-describedby'].map(name => element.getAttribute(name) || '');
  for (const id of names.join(' ').split(' ').filter(Boolean)) check(document.getElementById(id), `no id ${id}`);
}
for (const svg of all('svg')) {
  check(svg.getAttribute('role') === 'img', 'svg without role');
  for (const part of ['title', 'desc']) {
    const found = svg.querySelector(`:scope > ${part}`);
    check(found && found.textContent.trim(), `svg without ${part}`);
    check(svg.getAttribute('aria-labelledby').split(' ').includes(found.id), `svg not named by its ${part}`);
  }
}
for (const table of all('table')) {
  check(table.caption && table.caption.textContent.trim(), 'table without caption');
  for (const head of table.querySelectorAll('th')) check(head.scope, `th without scope: ${head.textContent}`);
  for (const row of table.rows) check(row.querySelector('th'), `no header in a row of ${table.caption.textContent}`);
}
for (const control of all('button, a[href], [tabindex]')) {
  check((control.ariaLabel || control.textContent).trim(), `${control.tagName} without a name`);
}
for (const region of all('[role=region], figure')) {
  check(region.ariaLabel || region.hasAttribute('aria-labelledby'), `${region.tagName} without a name`);
}
for (const mark of all('[role]')) check(['img', 'region'].includes(mark.getAttribute('role')), `role ${mark.role}`);
check(!all('[aria-hidden=true] a, [aria-hidden=true] button').length, 'a control that is hidden');
return wrong;
"""


def brightness(rgb):
    """0 to 255, of a computed colour such as "rgb(20, 23, 27)"."""
    return sum(int(part) for part in rgb.split("(")[1].rstrip(")").split(",")[:3]) / 3
