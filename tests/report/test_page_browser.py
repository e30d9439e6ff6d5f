"""The report page in a real browser: headless Chromium, without a network.

Needs the package playwright and a Chromium that is installed (``apt-get install chromium``) or named by $CHROMIUM.
"""

import os
import shutil
from dataclasses import replace

import pytest
from page_example import EMPTY, HOSTILE, example, example_table, own_page

from fedbench.report.page import page as html

sync = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs a Chromium in the path or named by $CHROMIUM")
WIDTHS = (1280, 400)
SCHEMES = ("light", pytest.param("dark", marks=pytest.mark.slow))  # test_page.py computes the contrasts of both
_ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(example()), encoding="utf-8", newline="\n")
    return path


@pytest.fixture
def visit(browser, file):
    """Opens the page and, at the end, holds it to its word: no error, no message, no request but for itself."""
    seen, contexts = [], []

    def opened(path=file, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda m: seen.append(f"console: {m.text}"))
        tab.on("pageerror", lambda e: seen.append(f"error: {e}"))
        tab.on("request", lambda r: r.url.startswith(("data:", path.as_uri())) or seen.append(f"request: {r.url}"))
        tab.goto(path.as_uri())
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert not seen


def fits(tab):
    return tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_horizontal_overflow(visit, width, scheme):
    tab = visit(width=width, color_scheme=scheme)
    assert fits(tab)
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert fits(tab)


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 400])
def test_long_words_and_hostile_text_do_not_overflow_either(visit, tmp_path, width):
    long = "x" * 300
    table = example_table("own", 1, 2)
    line = table.blocks[0].lines[0]
    line = replace(line, label=long, settings=long, command=long, note=HOSTILE.format(1), runs=(f"../{long}/",))
    table = replace(table, title=long, name=long, blocks=(replace(table.blocks[0], title=long, lines=(line,)),))
    paper = replace(example().papers[0], title=long, citation=long, tables=(table,))
    view = replace(EMPTY, title=long, papers=(paper,), environment=((long, long),), notes=(long,))
    (tmp_path / "long.html").write_text(html(view), encoding="utf-8")
    tab = visit(tmp_path / "long.html", width)
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert fits(tab)


@pytest.mark.parametrize("javascript", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_empty_page_and_one_without_scripts(visit, tmp_path, javascript):
    path = tmp_path / "empty.html"
    path.write_text(html(EMPTY), encoding="utf-8")
    assert visit(path, java_script_enabled=javascript).locator("h1").inner_text() == "Empty"
    tab = visit(java_script_enabled=javascript)
    assert tab.locator(".copy").first.is_visible() is False  # details are closed, or there is no script to copy
    assert tab.locator(".filter").is_visible() is javascript
    tab.locator(".do summary").first.click()
    assert tab.locator(".do pre").first.is_visible()


def numbers(table, column):
    """What a column shows, row by row; None where there is a dash."""
    read = "(rows, c) => rows.map((r) => r.cells[c].textContent.trim().split(/ /)[0])"
    shown = table.locator("tr.row").evaluate_all(read, column)
    return [None if t in ("–", "missing") else float(t.replace("\N{MINUS SIGN}", "-")) for t in shown]


def first_of_each(table):
    """What stands in each row: the method, and the line below it."""
    read = "(rows) => rows.map((r) => [r.cells[0].textContent, r.nextElementSibling?.textContent])"
    return table.locator("tr.row").evaluate_all(read)


@pytest.mark.slow
def test_a_column_sorts_up_and_down_and_back(visit):
    tab = visit()
    table = tab.locator("#table-adafedadam-table6 table")  # one setup
    assert table.locator("tbody").count() == 1
    before = first_of_each(table)
    button = table.locator(".sort[data-column='3']")
    head = button.locator("..")
    as_it_was = numbers(table, 3)
    assert None in as_it_was  # a row without a number
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    up = numbers(table, 3)
    assert up == [*sorted(n for n in as_it_was if n is not None), None]
    button.press("Enter")  # by keyboard
    assert head.get_attribute("aria-sort") == "descending"
    down = numbers(table, 3)
    assert down == [*reversed(up[:-1]), None]
    assert up != as_it_was or down != as_it_was
    assert sorted(first_of_each(table)) == sorted(before)  # each row has kept the line below it
    button.press("Space")
    assert head.get_attribute("aria-sort") is None
    assert first_of_each(table) == before


@pytest.mark.slow
def test_other_columns_sort_by_what_they_show(visit):
    tab = visit()
    table = tab.locator("#table-adafedadam-table6 table")
    for column in (4, 5):  # the paper's, with ±, and the differences, with a minus sign
        table.locator(f".sort[data-column='{column}']").click()
        found = [n for n in numbers(table, column) if n is not None]
        assert len(found) > 3
        assert found == sorted(found)
        assert table.locator("[aria-sort]").count() == 1
    table.locator(".sort[data-column='0']").click()
    methods = [first for first, _ in first_of_each(table)]
    assert methods == sorted(methods, key=str.casefold)


@pytest.mark.slow
def test_rows_stay_within_their_setup(visit):
    table = visit().locator("#table-adafedadam-table2 table")
    read = "(bodies) => bodies.map((b) => [...b.querySelectorAll('tr.row th')].map((h) => h.textContent).sort())"
    before = table.locator("tbody").evaluate_all(read)
    assert len(before) == 3
    table.locator(".sort").nth(3).click()
    assert table.locator("tbody").evaluate_all(read) == before
    for body in table.locator("tbody").all():
        assert "setup" in body.locator("tr").first.get_attribute("class")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["differs", "reduced"])
def test_filters_show_what_they_say_and_nothing_is_lost(visit, name):
    tab = visit()
    rows, below = tab.locator("tr.row"), tab.locator("tr.more")
    everything = rows.count()
    button = tab.locator(f"[data-filter={name}]")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    wanted = tab.locator(f"tr.row[data-{name}]").count()
    assert 0 < wanted < everything
    for part in (rows, below):
        assert part.evaluate_all("(all) => all.filter((r) => r.offsetParent).length") == wanted
    assert tab.locator(".shown").inner_text() == f"{wanted} of {everything} rows shown"
    empty = tab.locator(".nothing:not([hidden])").count()
    assert (empty > 0) is (name == "differs")  # own runs belong to no paper
    tab.locator("[data-filter=all]").click()
    assert rows.evaluate_all("(all) => all.filter((r) => r.offsetParent).length") == everything
    assert tab.locator(".nothing:not([hidden])").count() == 0


def test_links_within_the_page_lead_somewhere(visit):
    tab = visit()
    lost = "all => all.map(a => a.getAttribute('href')).filter(h => !document.getElementById(h.slice(1)))"
    links = tab.locator("a[href^='#'], use")
    assert links.count() > 100
    assert links.evaluate_all(lost) == []


@pytest.mark.slow
def test_the_contents_follow_the_reader(visit):
    tab = visit()
    tab.locator("#table-fedcada-table2").scroll_into_view_if_needed()
    tab.evaluate("document.getElementById('table-fedcada-table2').scrollIntoView({behavior: 'instant'})")
    tab.wait_for_selector(".toc a[aria-current][href='#table-fedcada-table2']")
    assert tab.locator(".toc .here").count() == 1
    narrow = visit(width=400)
    assert not narrow.locator(".toc li").first.is_visible()
    narrow.locator(".toc summary").click()
    assert narrow.locator(".toc li").first.is_visible()


@pytest.mark.slow
def test_a_command_is_shown_and_copied(visit):
    tab = visit()
    row = tab.locator("tr.more").nth(1)
    button = row.locator(".copy")
    assert not button.is_visible()
    row.locator(".do summary").focus()
    tab.keyboard.press("Enter")
    button.click()
    tab.wait_for_function("(b) => b.textContent !== 'Copy'", arg=button.element_handle())
    assert button.inner_text() in ("Copied", "Selected")
    tab.wait_for_function("(b) => b.textContent === 'Copy'", arg=button.element_handle())


@pytest.mark.slow
def test_a_command_is_copied_as_it_stands(visit, browser, file):
    tab = visit(permissions=["clipboard-read", "clipboard-write"])
    row = tab.locator("tr.more").first
    row.locator(".do summary").click()
    row.locator(".copy").click()
    tab.wait_for_function("document.querySelector('.copy.done')")
    assert tab.evaluate("navigator.clipboard.readText()") == row.locator("code").text_content()


def test_a_picture_is_enlarged_by_mouse_and_by_keyboard(visit):
    tab = visit()
    dialog, figure = tab.locator("dialog.large"), tab.locator("figure").first
    assert not dialog.is_visible()
    button = figure.locator(".enlarge")
    button.focus()
    tab.keyboard.press("Enter")
    assert dialog.is_visible()
    assert dialog.locator("p").inner_text() == figure.locator("figcaption b").inner_text()
    big = dialog.locator("img")
    assert big.get_attribute("alt") == figure.locator("img").get_attribute("alt")
    assert big.bounding_box()["width"] > 1.5 * figure.locator("img").bounding_box()["width"]
    tab.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert button.evaluate("(b) => b === document.activeElement")  # where the reader was
    figure.locator("img").click()
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()


@pytest.mark.parametrize("width", WIDTHS)
def test_all_comparisons_and_readings_unfold_by_keyboard(visit, width):
    tab = visit(width=width)
    claim = tab.locator("li.claim").first
    for name, rows in (("readings", 6), ("comparisons", 8)):
        fan = claim.locator(f".fan:has(> summary:has-text('{name}'))")
        table = fan.locator("table")
        assert not table.is_visible()
        fan.locator("summary").first.focus()
        tab.keyboard.press("Enter")
        assert table.is_visible()
        assert table.locator("tbody tr:not(.setup)").count() == rows
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_the_theme_is_chosen_and_kept(visit):
    tab = visit(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    button = tab.get_by_role("button", name="Dark theme")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    dark = tab.evaluate(ground)
    assert dark != light
    tab.reload()
    assert tab.evaluate(ground) == dark
    tab.emulate_media(media="print")
    assert tab.evaluate(ground) == "rgb(255, 255, 255)"  # paper is white


@pytest.mark.slow
def test_on_paper_all_is_open_and_only_the_page_is_there(visit):
    tab = visit(color_scheme="dark")
    assert tab.locator(".do[open]").count() == 0
    tab.emulate_media(media="print")
    tab.wait_for_function("!document.querySelector('details:not([open])')")
    for gone in (".side", ".skip", ".copy"):
        assert not tab.locator(gone).first.is_visible()
    assert tab.locator(".do pre").first.is_visible()
    washed = "getComputedStyle(document.querySelector('td.diff.bad > span')).backgroundColor"
    assert tab.evaluate(washed) == "rgb(252, 233, 226)"
    assert tab.evaluate("getComputedStyle(document.querySelector('tr.row')).breakInside") == "avoid"
    assert tab.pdf().startswith(b"%PDF")
    tab.emulate_media(media="screen")
    tab.wait_for_function("!document.querySelector('.do[open]')")


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = (c) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = [0, 1, 2].map((i) => linear(c[i] / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const c = rgb(getComputedStyle(at).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255, 255];
  };
  const poor = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest("svg, .vh")) continue;
    const [a, b] = [luminance(rgb(getComputedStyle(node).color)), luminance(ground(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.add(`${node.tagName}.${node.className}: ${walker.currentNode.data.trim()}`);
  }
  return [...poor];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(visit, scheme):
    tab = visit(color_scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert tab.evaluate(CONTRAST) == []


@pytest.mark.slow
def test_what_can_be_pressed_has_a_name(visit):
    tab = visit()
    nameless = "all => all.filter(e => !e.textContent.trim() && !e.ariaLabel).length"
    assert tab.locator("button, a, summary").evaluate_all(nameless) == 0
    assert tab.locator("img:not([alt]), img[alt='']").count() == 0
    assert tab.locator("h1").count() == 1


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "report.html"
    path.write_text(html(own_page()), encoding="utf-8", newline="\n")
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_are_as_wide_as_the_text_and_legible(visit, own, width):
    """The picture is at least as wide as the text above it, and on a phone scrolls instead of shrinking."""
    tab = visit(own, width=width)
    assert fits(tab)
    image = tab.locator(".plate img").first.bounding_box()
    if width > 1000:
        assert image["width"] >= tab.locator(".citation").first.bounding_box()["width"]
    else:
        assert image["width"] >= 38 * 16


def test_a_comparison_sorts_by_its_numbers(visit, own):
    tab = visit(own)
    table = tab.locator("table.free").first
    table.locator(".sort[data-column='1']").click()
    assert table.locator("tbody th").all_text_contents() == ["c", "a", "b"]
    table.locator(".sort[data-column='1']").press("Enter")
    assert table.locator("tbody th").all_text_contents() == ["b", "a", "c"]
