"""The report page in a real browser: headless Chromium, without a network.

Needs the package playwright and a Chromium that is installed (``apt-get install chromium``) or
named by $CHROMIUM.
"""

import os
import shutil

import pytest
from page_example import HOSTILE, hostile_content, own_content

from fedbench.reports.page import page as html

sync = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not CHROMIUM, reason="needs a Chromium in the path or named by $CHROMIUM"),
]
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
)


@pytest.fixture(scope="module")
def browser():
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield started
        started.close()


@pytest.fixture
def visit(browser, mixed):
    """Open a page; at the end there were no errors, messages or requests but for itself."""
    seen = []
    requests = []
    contexts = []

    def opened(path=mixed.report / "index.html", width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: seen.append(message.text))
        tab.on("pageerror", lambda error: seen.append(f"{error}"))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(path.as_uri())
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert not seen
    assert not [url for url in requests if not url.startswith(("data:", "file:"))]


def fits(tab):
    return tab.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


@pytest.mark.parametrize("width", [1280, 400])
def test_no_horizontal_overflow_also_with_open_details(visit, width):
    tab = visit(width=width)
    assert fits(tab)
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert fits(tab)


@pytest.mark.parametrize("text", ["x" * 300 + "{0}", HOSTILE])
def test_long_words_and_hostile_text_do_not_overflow_either(visit, tmp_path, text):
    _, content = hostile_content(text)
    file = tmp_path / "long.html"
    file.write_text(html(content), encoding="utf-8")
    assert fits(visit(file, 400))


def test_a_page_without_scripts_can_be_read(visit):
    tab = visit(java_script_enabled=False)
    assert tab.locator("h1").inner_text() == "AdaFedAdam and FAFED: printed and measured"
    assert tab.locator(".filter").is_visible() is False
    tab.locator(".do summary").first.click()
    assert tab.locator(".do pre").first.is_visible()


def test_a_table_is_sorted_by_a_heading_and_back(visit, tmp_path):
    """Rows keep the line below them; missing numbers stay at the end."""
    file = tmp_path / "own.html"
    file.write_text(html(own_content(tmp_path / "runs")), encoding="utf-8")
    tab = visit(file)
    table = tab.locator("table.data").first
    heading = table.locator("button.sort").nth(1)
    read = "(rows) => rows.map((r) => r.cells[1].textContent.replace(/[^0-9.-]/g, ''))"
    orders = []
    for _ in range(2):
        heading.click()
        orders.append([float(v) for v in table.locator("tr.row").evaluate_all(read)])
    assert sorted(orders[0]) in orders
    assert orders[0] == orders[1][::-1]


def test_the_filter_shows_reduced_rows_alone(visit):
    tab = visit()
    tab.locator('[data-filter="reduced"]').click()
    marked = tab.locator("tr.row[data-reduced]").count()
    assert marked > 0
    assert tab.locator("tr.row:visible").count() == marked
    tab.locator('[data-filter="all"]').click()
    assert tab.locator("tr.row:visible").count() > marked


def test_the_theme_can_be_chosen_and_a_figure_enlarged(visit):
    tab = visit(color_scheme="light")
    before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.locator("button.theme").click()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before
    tab.locator("button.enlarge").first.click()
    assert tab.locator("dialog.large").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.locator("dialog.large").is_visible()
