"""The report page in a real browser: headless Chromium, without a network.

Needs the package playwright and a Chromium that is installed (``apt-get install chromium``) or
named by $CHROMIUM.
"""

import numpy as np
import pytest
from browsing import fits
from page_example import HOSTILE, hostile_content, own_content

from fedbench.reports.canvas import looks
from fedbench.reports.charts import curve_chart, label_matrix
from fedbench.reports.page import Content, render_page
from fedbench.reports.page import page as html
from fedbench.reports.panels import Panel, Series
from fedbench.reports.plots import DrawnFigure, curves, drawn

pytestmark = pytest.mark.processes
expect = pytest.importorskip("playwright.sync_api", reason="needs the package playwright").expect


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


def open_everything(tab):
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")


@pytest.mark.parametrize("width", [1280, 400])
def test_no_horizontal_overflow_also_with_open_details(visit, width):
    tab = visit(width=width)
    assert fits(tab)
    open_everything(tab)
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
    tab.locator("details.sheets[open] .do summary").first.click()
    expect(tab.locator("details.sheets[open] .do pre").first).to_be_visible()
    assert tab.locator(".live:visible").count() == 0


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
    open_everything(tab)
    tab.locator('[data-filter="reduced"]').click()
    marked = tab.locator("tr.row[data-reduced]").count()
    assert marked > 0
    expect(tab.locator("tr.row:visible")).to_have_count(marked)
    tab.locator('[data-filter="all"]').click()
    expect(tab.locator("tr.row:not([data-reduced])").first).to_be_visible()


def test_the_theme_can_be_chosen_and_a_figure_enlarged(visit):
    tab = visit(color_scheme="light")
    before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.locator("button.theme").click()
    expect(tab.locator("body")).not_to_have_css("background-color", before)
    open_everything(tab)
    tab.locator("button.enlarge").first.click()
    expect(tab.locator("dialog.large")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator("dialog.large")).to_be_hidden()


# ---- interactive charts


@pytest.fixture
def charted(tmp_path):
    """A page with a figure: the curves of two methods with two seeds."""
    look = looks({"FedAvg": "fedavg", "FedFa": "fedfa"})
    rounds = np.arange(10)
    lines = [
        Series("FedAvg", rounds, np.stack([rounds + 1.0, rounds + 2.0]), look["FedAvg"]),
        Series("FedFa", rounds, np.stack([rounds + 4.0, rounds + 5.0]), look["FedFa"]),
    ]
    panel = Panel("Synthetic", lines, "round", "training loss")
    figure = drawn(DrawnFigure("f", "Losses"), tmp_path, [("", curves, [panel])])
    file = tmp_path / "charted.html"
    file.write_text(html(Content("Charts", figures=tuple(figure))), encoding="utf-8")
    return file


def first_chart(tab):
    """The first chart, drawn, and a function for the text that a pointer in its middle shows."""
    plate = tab.locator(".plate:has(.live)").first
    plate.scroll_into_view_if_needed()
    canvas = plate.locator(".charts .marks").first
    canvas.wait_for()

    def hovered():
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 - 5)
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        shown = tab.locator("#vg-tooltip-element.visible")
        shown.wait_for()
        return shown.inner_text()

    return plate, hovered


@pytest.mark.parametrize("width", [1280, 400])
def test_a_chart_takes_the_place_of_a_picture_and_a_pointer_reads_it(visit, charted, width):
    tab = visit(charted, width)
    plate, hovered = first_chart(tab)
    assert not plate.locator("img").is_visible()
    names = plate.locator(".lines button:not(.log)").all_inner_texts()
    text = hovered()
    assert names == ["FedAvg", "FedFa"]
    assert any(name in text for name in names)
    assert "lowest seed" in text
    assert fits(tab)


def test_a_line_is_hidden_and_shown_by_its_name_also_with_the_keyboard(visit, charted):
    tab = visit(charted)
    plate, hovered = first_chart(tab)
    buttons = plate.locator(".lines button:not(.log)")
    name = buttons.first.inner_text()
    for button in buttons.all()[1:]:
        button.click()
        expect(button).to_have_attribute("aria-pressed", "false")
    assert name in hovered()  # the only line that is left
    buttons.nth(1).focus()
    tab.keyboard.press("Space")
    buttons.first.click()
    tab.mouse.move(0, 0)
    assert buttons.nth(1).inner_text() in hovered()


def test_an_axis_becomes_logarithmic(visit, charted):
    tab = visit(charted)
    plate, hovered = first_chart(tab)
    canvas = plate.locator(".charts .marks").first
    before = canvas.screenshot()
    button = plate.locator(".lines .log")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    hovered()
    tab.mouse.move(0, 0)
    assert canvas.screenshot() != before


def test_a_link_opens_what_it_leads_to(visit, mixed):
    tab = visit()
    folded = tab.locator("details:not([open]) .claims > li").first
    name = folded.get_attribute("id")
    assert not folded.is_visible()
    tab.goto(f"{(mixed.report / 'index.html').as_uri()}#{name}")
    tab.reload()
    claim = tab.locator(f"#{name}")
    expect(claim.locator("> details")).to_have_attribute("open", "")
    expect(claim).to_be_visible()


def test_many_lines_are_hidden_and_shown_at_once(visit, tmp_path):
    names = [f"method {i}" for i in range(8)]
    look = looks(dict.fromkeys(names, ""))
    lines = [Series(n, np.arange(3), np.full((1, 3), i), look[n]) for i, n in enumerate(names)]
    panel = Panel("Synthetic", lines, "round", "training loss")
    figure = DrawnFigure("f", "Losses", charts=(curve_chart(panel),))
    file = tmp_path / "many.html"
    file.write_text(html(Content("Charts", figures=(figure,))), encoding="utf-8")
    tab = visit(file)
    plate, hovered = first_chart(tab)
    plate.locator(".every").click()
    expect(plate.locator('.lines button:not(.log)[aria-pressed="false"]')).to_have_count(9)
    plate.get_by_role("button", name="method 3").click()
    assert "method 3" in hovered()
    every = plate.locator(".every")
    expect(every).to_have_attribute("aria-pressed", "false")
    every.click()  # shows all
    expect(plate.locator('.lines button:not(.log)[aria-pressed="true"]')).to_have_count(9)
    plate.get_by_role("button", name="method 3").click()
    expect(every).to_have_attribute("aria-pressed", "false")


@pytest.mark.parametrize("width", [1280, 400])
def test_a_pointer_shows_the_counts_of_a_label_matrix(visit, tmp_path, width):
    file = tmp_path / "labels.html"
    text = render_page(
        "labels.html",
        charts=True,
        title="mnist_iid",
        facts={"clients": "5"},
        chart=label_matrix(np.full((3, 5), 7)),
        shown=3,
        clients=5,
    )
    file.write_text(text, encoding="utf-8")
    tab = visit(file, width)
    _, hovered = first_chart(tab)
    assert {"examples\t7", "share\t0.2"} <= set(hovered().split("\n"))
    assert "the first 3 of 5 clients" in tab.locator("#labels").inner_text()
    assert fits(tab)
