"""The viewer in a real browser: headless Chromium, with a server on loopback.

Needs the package playwright and a Chromium, like ``test_page_browser``.
"""

import json

import pytest
from browsing import fits
from fake_runs import change_facts, fake, fake_run
from page_example import HOSTILE
from viewing import viewing

from fedbench.reports.viewer import server

pytestmark = pytest.mark.processes
expect = pytest.importorskip("playwright.sync_api", reason="needs the package playwright").expect


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
    expect(tab.locator("tr.row:visible")).to_have_count(2)
    expect(tab.locator(".shown")).to_have_text("2 of 3 runs shown")
    tab.locator("#sought").fill("none of them")
    expect(tab.locator(".nothing")).to_be_visible()
    tab.get_by_role("button", name="1 failed").click()
    expect(tab.locator("tr.row:visible")).to_have_count(1)
    tab.locator("#sought").fill("")
    seeds = []
    for _ in range(2):
        tab.locator(".sort", has_text="seed").click()
        seeds.append(
            tab.locator("tr.row").evaluate_all("(r) => r.map((x) => x.cells[3].innerText)")
        )
    assert seeds == [["0", "0", "1"], ["1", "0", "0"]]
    assert fits(tab)


def add_round(path):
    with (path / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 90, "train_loss": 7.5, "accuracy_mean": 0.25}) + "\n")


def focused(tab):
    """The element with the focus, and the identifier of its row or its text."""
    return tab.evaluate(
        """() => {
          const element = document.activeElement;
          return [element.localName, element.closest("tr")?.id ?? element.innerText];
        }"""
    )


@pytest.mark.parametrize("algo", ["fedprox", "fedfa"])
def test_the_focus_stays_on_a_link_when_a_run_changes(visit, root, algo):
    changed = fake_run(root, None, "fedprox", status="running")
    tab = visit()
    row(tab, algo).get_by_role("link").focus()
    before = focused(tab)
    for _ in range(2):
        with tab.expect_request("**/runs.json"):
            pass
    assert focused(tab) == before
    add_round(changed)
    row(tab, "90/1000").wait_for()
    assert focused(tab) == before
    assert before == ["a", row(tab, algo).get_attribute("id")]


def test_the_focus_stays_on_a_state_when_its_count_changes(visit, root):
    tab = visit()
    tab.get_by_role("button", name="1 failed").focus()
    fake_run(root, None, "fedprox", status="failed", error="no memory")
    tab.get_by_role("button", name="2 failed").wait_for()
    assert focused(tab) == ["button", "2 failed"]


def test_lines_stay_while_the_runs_are_chosen(visit, root, monkeypatch):
    monkeypatch.setattr(server, "MOST_LINES", 2)
    runs = [fake_run(root, None, algo, status="running") for algo in ("fedprox", "fednova", "afl")]
    tab = visit()
    for algo in ("fedprox", "fednova", "afl"):
        row(tab, algo).locator("input").check()
    tab.locator(".drawn", has_text="2 of 3.").wait_for()
    with tab.expect_request("**/runs.json"):  # the last one has been drawn
        pass
    with tab.expect_request("**/runs.json"):
        before = names(tab)
    assert before == ["fednova seed 0", "fedprox seed 0"]
    add_round(runs[-1])
    row(tab, "90/1000").wait_for()
    with tab.expect_request("**/runs.json"):
        pass
    assert names(tab) == before
    row(tab, "fedprox").locator("input").uncheck()
    tab.locator(".lines button", has_text="afl seed 0").wait_for()
    assert names(tab) == ["afl seed 0", "fednova seed 0"]


def test_a_late_answer_is_dropped(visit, root):
    tab = visit()
    assert len(names(tab)) == 3
    late = []
    tab.route("**/charts.json?*fedfa*", lambda route: late.append(route))
    box = row(tab, "fedfa").locator("input")
    box.check()
    box.uncheck()
    row(tab, "fedavg").first.locator("input").check()
    tab.locator(".lines button").nth(2).wait_for(state="detached")
    (name,) = names(tab)
    assert "fedavg" in name
    tab.evaluate(
        """() => {
          globalThis.seen = [];
          const note = () => globalThis.seen.push(document.querySelector(".lines").innerText);
          new MutationObserver(note).observe(document.querySelector(".lines"), { childList: true });
        }"""
    )
    for route in late:
        route.continue_()
    for _ in range(2):
        with tab.expect_request("**/runs.json"):
            pass
    assert late
    assert tab.evaluate("seen") == []
    assert names(tab) == [name]


def test_errors_are_shown_as_they_are(visit, monkeypatch):
    def fail(paths, root):
        raise ValueError("<the disk> is full")

    errors = []
    tab = visit(watched=False)
    tab.on("pageerror", lambda error: errors.append(error))
    names(tab)
    with monkeypatch.context() as patched:
        patched.setattr(server, "run_charts", fail)
        row(tab, "fedfa").locator("input").check()
        tab.locator(".lost", has_text="<the disk> is full").wait_for()
    tab.locator(".lost").wait_for(state="detached")
    for answer, message in (
        (lambda route: route.fulfill(body="null"), "null"),
        (lambda route: route.fulfill(status=502), "The viewer answers with status 502."),
        (lambda route: route.abort(), "The viewer does not answer; it may have ended."),
    ):
        tab.route("**/runs.json", answer)
        tab.locator(".lost", has_text=message).wait_for()
        tab.unroute("**/runs.json")
    tab.locator(".lost").wait_for(state="detached")
    assert not errors


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
    add_round(path)
    row(tab, "90/1000").wait_for()
    assert "25.00" in row(tab, "90/1000").inner_text()
    assert row(tab, "fedprox").locator("input").is_checked()
    assert tab.evaluate("document.activeElement.type") == "checkbox"
    expect(tab.locator("tr.row:visible")).to_have_count(1)  # the filter and the order are kept
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
    expect(tab.locator("h1")).to_have_text("fedfa, seed 0")
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
