"""The viewer in a real browser: headless Chromium, with a server on loopback.

Needs the package playwright and a Chromium, like ``test_page_browser``.
"""

import json

import pytest
from browsing import fits
from fake_runs import change_facts, fake, fake_run
from page_example import HOSTILE
from viewing import viewing

pytestmark = pytest.mark.processes


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "results"
    fake(root, None, "fedavg", seeds=(0, 1))
    fake_run(root, None, "fedfa", status="failed", error="no memory")
    return root


@pytest.fixture
def visit(browser, root):
    """Open a page of the viewer; at the end there were no messages, and no requests elsewhere."""
    seen = []
    requests = []
    contexts = []
    with viewing(root) as viewer:

        def opened(path="", width=1280, watched=True):
            context = browser.new_context(viewport={"width": width, "height": 900})
            contexts.append(context)
            tab = context.new_page()
            if watched:
                tab.on("console", lambda message: seen.append(message.text))
                tab.on("pageerror", lambda error: seen.append(f"{error}"))
            tab.on("request", lambda request: requests.append(request.url))
            tab.goto(viewer.address + path)
            return tab

        yield opened
        for context in contexts:
            context.close()
        address = viewer.address
    assert not seen
    assert not [url for url in requests if not url.startswith((address, "data:"))]


def row(tab, text):
    return tab.locator("table.data tr.row", has_text=text)


def chart(tab):
    canvas = tab.locator(".charts .marks").first
    canvas.wait_for()
    return canvas


def names(tab):
    chart(tab)
    return tab.locator(".lines button:not(.log)").all_inner_texts()


@pytest.mark.parametrize("width", [1280, 400])
def test_the_table_is_filtered_and_sorted_and_has_charts(visit, width):
    tab = visit(width=width)
    row(tab, "fedfa").wait_for()
    assert names(tab) == ["fedavg seed 0", "fedavg seed 1", "fedfa seed 0"]
    assert fits(tab)
    tab.locator("#sought").fill("FEDAVG")
    assert tab.locator("tr.row:visible").count() == 2
    assert tab.locator(".shown").inner_text() == "2 of 3 runs shown"
    tab.locator("#sought").fill("none of them")
    assert tab.locator(".nothing").is_visible()
    tab.get_by_role("button", name="1 failed").click()
    assert tab.locator("tr.row:visible").count() == 1
    tab.locator("#sought").fill("")
    seeds = []
    for _ in range(2):
        tab.locator(".sort", has_text="seed").click()
        seeds.append(
            tab.locator("tr.row").evaluate_all("(r) => r.map((x) => x.cells[3].innerText)")
        )
    assert seeds == [["0", "0", "1"], ["1", "0", "0"]]
    assert fits(tab)


def test_a_new_round_appears_in_the_table_and_in_the_charts(visit, root):
    path = fake_run(root, None, "fedprox", status="running")
    tab = visit()
    row(tab, "10/1000").first.wait_for()
    before = chart(tab).screenshot()
    tab.locator(".sort", has_text="seed").click()
    tab.locator("#sought").fill("fedprox")
    box = row(tab, "fedprox").locator("input")
    box.check()
    box.focus()
    with (path / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 90, "train_loss": 7.5, "accuracy_mean": 0.25}) + "\n")
    row(tab, "90/1000").wait_for()
    assert "25.00" in row(tab, "90/1000").inner_text()
    assert row(tab, "fedprox").locator("input").is_checked()
    assert tab.evaluate("document.activeElement.type") == "checkbox"
    assert tab.locator("tr.row:visible").count() == 1  # the filter and the order are kept
    assert tab.locator("[aria-sort]").inner_text().strip() == "seed"
    tab.locator(".lines button", has_text="fedprox seed 0").wait_for()
    assert names(tab) == ["fedprox seed 0"]
    assert chart(tab).screenshot() != before


def test_a_line_is_hidden_and_the_axis_is_logarithmic(visit):
    tab = visit()
    for button in (tab.locator(".lines button").first, tab.locator(".lines .log")):
        before = chart(tab).screenshot()
        button.click()
        tab.mouse.move(0, 0)
        assert any(chart(tab).screenshot() != before for _ in range(50))


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_of_a_run(visit, width):
    tab = visit(width=width)
    row(tab, "fedfa").get_by_role("link").click()
    assert names(tab) == ["fedfa seed 0"]
    assert tab.locator("h1").inner_text() == "fedfa, seed 0"
    assert tab.locator("header .odd").inner_text() == "no memory"
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert fits(tab)
    tab.get_by_role("link", name="meta.json").click()
    assert '"algo": "fedfa"' in tab.locator("body").inner_text()


def test_a_run_that_ends_reloads_its_page(visit, root):
    tab = visit()
    row(tab, "fedfa").get_by_role("link").click()
    chart(tab)
    (folder,) = (root / "synthetic_leaf" / "fedfa").glob("*")
    change_facts(folder, status="interrupted")
    tab.locator("header .badge", has_text="interrupted").wait_for()


def test_a_report_is_shown_with_its_scripts_but_cannot_read_the_runs(visit, root):
    (root / "report").mkdir()
    (root / "report" / "index.html").write_text(
        "<h1>?</h1><script>fetch('/runs.json').then(() => 'read', () => 'refused')"
        ".then((word) => { document.querySelector('h1').textContent = word; });</script>"
    )
    tab = visit(watched=False)  # the refusal is a message
    tab.get_by_role("link", name="report", exact=True).click()
    tab.locator("h1", has_text="refused").wait_for()


def test_hostile_names_are_text(visit, root):
    change_facts(root, data=HOSTILE, algo=HOSTILE, model=HOSTILE, overrides=[HOSTILE])
    tab = visit(width=400)
    row(tab, "alert(1)").first.wait_for()
    chart(tab)
    assert tab.locator("main img").count() == 0
    assert fits(tab)
