"""The page in a real Chromium: nothing goes wrong, nothing leaves the file, and it fits where it is read."""

import base64
import json
import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from epochbench.records.store import load
from epochbench.report.html import write_page
from epochbench.report.palette import PAGE
from tests.runfiles import make_run

PUBLISHED = Path(__file__).parents[2] / "results" / "published.csv"
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


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """name → path of a page: results of two machines, hostile names, a CPU alone, nothing."""
    folder = tmp_path_factory.mktemp("pages")
    race = {"cpu": [8, 8.3, 7.8, 8.1], "cuda": [1, 1.02, 0.99, 1.01]}
    hostile = ("<script>document.title = 'pwned'</script>", "$x$", "n" * 200, "שלום", "🚀")
    runs = {
        "two": [
            make_run(folder / "a.jsonl", label="Colab", workloads={"cnn": race, "resnet50_transfer": race}),
            make_run(folder / "b.jsonl", label="desk", workloads={"cnn": race}),
        ],
        "hostile": [
            make_run(
                folder / "c.jsonl", label="L" * 200, workloads=dict.fromkeys(hostile, race),
                skipped={"xpu": "<img src=https://example.com/x.png onerror=alert(1)> " * 20},
            )
        ],
        "alone": [make_run(folder / "d.jsonl", workloads={"cnn": {"cpu": [8, 8]}}, skipped={"cuda": "no"})],
        "nothing": [],
    }  # fmt: skip
    return {
        name: write_page(load(*files), folder / f"{name}.html", published=PUBLISHED) for name, files in runs.items()
    }


NAMES = ["two", "hostile", "alone", "nothing"]


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


def test_headings_tables_and_both_charts_are_there_and_visible(browser, pages):
    show(browser, pages["two"])
    headings = [heading.text for heading in browser.find_elements(By.TAG_NAME, "h2")]
    assert headings == ["Speedup", "Charts", "Whole-job times", "Machines", "What was trained",
                        "Published by others", "How this was measured"]  # fmt: skip
    tables = browser.find_elements(By.TAG_NAME, "table")
    assert len(tables) == 5
    charts = browser.find_elements(By.CSS_SELECTOR, "svg[role=img]")
    assert len(charts) == 2
    for element in [*tables, *charts]:
        assert element.is_displayed()
        assert element.size["width"] > 200
        assert element.size["height"] > 50
    assert len(browser.find_elements(By.CSS_SELECTOR, "article")) == 3


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
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


def brightness(rgb):
    """0 to 255, of a computed colour such as "rgb(20, 23, 27)"."""
    return sum(int(part) for part in rgb.split("(")[1].rstrip(")").split(",")[:3]) / 3
