"""``fedbench view``: what its server answers, and what it refuses."""

import html
import json
import os
import re
import shutil
import signal
import socket
import struct
import time
from http.client import RemoteDisconnected
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread

import pandas as pd
import pytest
from fake_runs import ROUNDS, change_facts, edit, fake, fake_run, measured
from filelock import FileLock
from page_example import HOSTILE
from viewing import ask, viewing

from fedbench.cli import main
from fedbench.reports.viewer import listing, server
from fedbench.reports.viewer.listing import url_path
from fedbench.reports.viewer.server import Viewer

SECRET = b"the secret of another directory"


@pytest.fixture
def root(tmp_path):
    """A directory with two runs, and a file next to it."""
    root = tmp_path / "results"
    fake(root, None, "fedavg", seeds=(0, 1))
    (tmp_path / "secret.txt").write_bytes(SECRET)
    return root


@pytest.fixture
def viewer(root):
    with viewing(root) as viewer:
        yield viewer


def rows(viewer):
    answer = ask(viewer, "/runs.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    return json.loads(answer.body)


def charts(viewer, *ids):
    query = "&".join(f"run={name}" for name in ids)
    answer = ask(viewer, f"/charts.json?{query}")
    assert answer.status == 200
    return json.loads(answer.body)


def unfinished(root, t=ROUNDS[-1]):
    """Leave an unfinished run that is at some round; returns its directory."""
    path = fake_run(root, None, "fedprox", status="running")
    add_round(path, t)
    return path


def add_round(path, t, **fields):
    row = {"round": t, "train_loss": 0.5, "accuracy_mean": 0.25, **fields}
    with (path / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


# ---- the table


def test_the_table_has_the_numbers_of_a_run_in_percent(viewer):
    row, other = rows(viewer)
    assert (row["setting"], row["algo"], row["model"]) == ("synthetic_leaf", "fedavg", "linear")
    assert (row["seed"], other["seed"]) == ("0", "1")
    assert (row["round"], row["rounds"], row["state"]) == (10, 1000, "done")
    for name in ("accuracy_mean", "accuracy_worst30", "accuracy_std"):
        assert row[name] == pytest.approx(100 * measured(None, "fedavg", {}, 0, name))


def test_a_run_is_listed_in_any_state_and_finished_ones_come_last(root):
    held = unfinished(root, 11)
    fake_run(root, None, "fednova", status="failed", error="no memory")
    fake_run(root, None, "fedyogi", status="diverged")
    (fake_run(root, None, "term") / "rounds.jsonl").write_text("torn")
    odd = fake_run(root, None, "afl", status="failed")
    (odd / "rounds.jsonl").write_text('{"round": [], "accuracy_mean": "much"}\n')
    with viewing(root) as viewer, FileLock(held / ".lock"):
        listed = rows(viewer)
    states = {row["algo"] or row["path"].split("/")[1]: row["state"] for row in listed}
    assert states == {
        "fedprox": "running",
        "fednova": "failed",
        "fedyogi": "diverged",
        "afl": "damaged",
        "term": "damaged",
        "fedavg": "done",
    }
    assert listed[0]["state"] == "running"
    assert listed[1]["error"] == "no memory"
    assert [row["state"] for row in listed[-2:]] == ["done", "done"]


def test_keys_that_were_typed_are_shown_unless_they_have_a_column(root):
    change_facts(root, overrides=["algo=fedavg", "local.lr=0.3", "seed=0", "rounds=10"])
    with viewing(root) as viewer:
        assert rows(viewer)[0]["settings"] == "local.lr=0.3"


def test_a_new_round_appears_and_only_changed_runs_are_read_again(root, monkeypatch):
    path = unfinished(root, 11)
    read = []
    viewed = listing.viewed
    monkeypatch.setattr(listing, "viewed", lambda path: read.append(path) or viewed(path))
    with viewing(root) as viewer:
        before = rows(viewer)
        assert len(read) == 3
        rows(viewer)
        assert len(read) == 3
        add_round(path, 12, accuracy_mean=0.5)
        after = rows(viewer)
    assert read[3:] == [path]
    assert [row["round"] for row in (before[0], after[0])] == [11, 12]
    assert after[0]["accuracy_mean"] == 50


def test_a_removed_run_disappears(root, viewer):
    assert len(rows(viewer)) == 2
    gone = root / rows(viewer)[0]["path"]
    for file in gone.iterdir():
        file.unlink()
    assert [row["seed"] for row in rows(viewer)] == ["1"]


def test_of_a_finished_run_only_the_last_file_is_looked_at(root, viewer, monkeypatch):
    rows(viewer)
    stat = Path.stat
    seen = set()
    monkeypatch.setattr(
        Path, "stat", lambda path, **options: seen.add(path) or stat(path, **options)
    )
    rows(viewer)
    assert {path.name for path in seen if root in path.parents} == {"DONE"}


def test_a_run_is_not_searched_for_runs(root, viewer):
    run = root / rows(viewer)[0]["path"]
    fake(run, None, "fedprox", seeds=(0,))
    (root / "meta.json").write_text("{}")  # without config.yaml, it is of no run
    assert [row["algo"] for row in rows(viewer)] == ["fedavg", "fedavg"]


def test_the_table_agrees_with_the_page_of_a_run(root, viewer):
    row, _ = rows(viewer)
    (root / row["path"] / "rounds.jsonl").write_text("torn")
    assert "damaged" in text(ask(viewer, f"/run/{row['id']}"))
    states = {row["path"]: row["state"] for row in rows(viewer)}
    assert states[row["path"]] == "damaged"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"overrides": 5}, "meta.json: overrides must be of type list, got 5"),
        ({"overrides": None}, "meta.json: overrides must be of type list, got null"),
        ({"versions": None}, "meta.json: versions must be of type dict, got null"),
        ({"remarks": 3}, "meta.json: remarks must be of type list, got 3"),
        ({"seed": "x"}, "meta.json: seed must be of type int, got 'x'"),
        ({"status": "ended"}, "meta.json: there is no status 'ended'"),
        ({"departures": None}, "'NoneType' object has no attribute 'items'"),
        ({"peak_memory_bytes": "much"}, "unsupported operand"),
    ],
    ids=str,
)
@pytest.mark.parametrize("done", [True, False])
def test_a_run_with_odd_facts_is_damaged_and_the_others_are_shown(root, facts, reason, done):
    path = fake_run(root, None, "fedprox", status="done" if done else "interrupted")
    change_facts(path, **facts)
    if not done and "status" in facts:
        reason = ""  # the state of an unfinished run that no process holds
    with viewing(root) as viewer:
        (row,) = [row for row in rows(viewer) if "fedprox" in row["path"]]
        assert row["state"] == ("damaged" if reason else "process gone")
        assert reason in row["error"]
        page = text(ask(viewer, f"/run/{row['id']}"))
        assert row["state"] in page
        assert reason in page
        ids = [row["id"] for row in rows(viewer)]
        assert len(charts(viewer, *ids)[0]["data"]["values"]) == (2 if reason else 3)


def test_a_lock_that_cannot_be_read_damages_its_run_only(root):
    (unfinished(root) / ".lock").mkdir()
    with viewing(root) as viewer:
        states = [row["state"] for row in rows(viewer)]
    assert states == ["damaged", "done", "done"]


def test_an_unchanged_table_is_not_sent_again(viewer):
    first = ask(viewer, "/runs.json")
    again = ask(viewer, "/runs.json", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


# ---- charts


def test_charts_have_a_line_per_run_and_the_new_rounds_of_unfinished_ones(root, viewer):
    path = unfinished(root, 11)
    ids = [row["id"] for row in rows(viewer)]
    titles = [spec["layer"][0]["encoding"]["y"]["title"] for spec in charts(viewer, *ids)]
    assert titles[:2] == ["training loss", "mean accuracy (%)"]
    assert titles[-1] == "accuracy (%)"  # of the clients, by rank
    lines = charts(viewer, *ids)[0]["data"]["values"]
    assert {line["name"] for line in lines} == {"fedavg seed 0", "fedavg seed 1", "fedprox seed 0"}
    add_round(path, 12)
    (line, *_) = charts(viewer, ids[0])[0]["data"]["values"]
    assert line["x"] == [*ROUNDS, 11, 12]


def test_runs_that_differ_in_a_key_have_it_in_their_names(root, viewer):
    fake_run(root, None, "fedavg", {"local.lr": 0.1})
    fake_run(root, None, "fedavg", {"local.lr": 0.2})
    ids = [row["id"] for row in rows(viewer)]
    names = {line["name"] for line in charts(viewer, *ids)[0]["data"]["values"]}
    assert {"fedavg local.lr=0.1 seed 0", "fedavg local.lr=0.2 seed 0"} <= names
    assert len(names) == 4


def test_runs_without_rounds_or_with_damage_have_no_lines(root, viewer):
    path = fake_run(root, None, "fedprox", status="running")
    (path / "rounds.jsonl").write_text("")
    (fake_run(root, None, "term") / "rounds.jsonl").write_text("torn")
    ids = [row["id"] for row in rows(viewer)]
    lines = charts(viewer, *ids)[0]["data"]["values"]
    assert [line["name"] for line in lines] == ["fedavg seed 0", "fedavg seed 1"]
    assert charts(viewer) == []


@pytest.mark.parametrize("odd", ["rounds.jsonl", "clients.parquet"])
def test_a_run_that_cannot_be_drawn_has_no_line(root, viewer, odd):
    path = unfinished(root)
    if odd == "rounds.jsonl":
        row = {"round": 0, "train_loss": "much"}
        (path / odd).write_text(json.dumps(row) + "\n")
    else:
        pd.DataFrame({"client": [0]}).to_parquet(path / odd)
    ids = [row["id"] for row in rows(viewer)]
    lines = charts(viewer, *ids)[0]["data"]["values"]
    assert [line["name"] for line in lines] == ["fedavg seed 0", "fedavg seed 1"]


def test_runs_that_do_not_exist_are_left_out_of_charts(root, viewer):
    outside = fake_run(root.parent, "run", "fedavg")
    (root / "out").symlink_to(outside.parent)
    some = [row["id"] for row in rows(viewer)]
    gone = ["missing", "out/seed_0", f"../{outside.relative_to(root.parent)}"]
    assert charts(viewer, *gone, *some) == charts(viewer, *some)
    assert charts(viewer, *gone) == []


def test_copies_of_a_run_have_lines_of_their_own(root, viewer):
    shutil.copytree(root / "synthetic_leaf", root / "copy")
    ids = [row["id"] for row in rows(viewer)]
    assert len(ids) == 4
    for chart in charts(viewer, *ids):
        names = {line["name"] for line in chart["data"]["values"]}
        assert names == set(chart["encoding"]["color"]["scale"]["domain"])
        assert len(names) == 4
    assert f"fedavg seed 0 {ids[0]}" in names


def test_runs_of_an_experiment_on_other_data_have_lines_of_their_own(root, viewer):
    path = fake_run(root, "table", "fedavg")
    other = root / "other"
    shutil.copytree(path, other)
    change_facts(other, data="fmnist", hash="other")
    ids = [url_path(p, root) for p in (path, other)]
    names = {line["name"] for line in charts(viewer, *ids)[0]["data"]["values"]}
    assert names == {"fedavg data=synthetic_leaf seed 0", "fedavg data=fmnist seed 0"}


# ---- the page of a run


def text(answer):
    assert answer.status == 200
    return text_of(answer)


def text_of(answer):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.body.decode())).split())


def test_the_page_of_a_run(root, viewer):
    path = root / rows(viewer)[0]["path"]
    change_facts(
        path,
        overrides=["algo=fedavg", "local.lr=0.3"],
        departures={"local.lr": [0.1, 0.3]},
        remarks=["privacy: ε = 3"],
        git_commit="0123abc",
        git_dirty=True,
        device="cuda:0",
    )
    page = text(ask(viewer, f"/run/{rows(viewer)[0]['id']}"))
    for part in (
        "fedavg, seed 0",
        "round 10 of 1000",
        "fedbench algo=fedavg local.lr=0.3",
        "0.3 (the experiment has 0.1)",
        "privacy: ε = 3",
        "0123abc with changes",
        "cuda:0, cpu",
        "fedbench 0.1.0, torch 2",
    ):
        assert part in page
    links = re.findall(
        r'href="(/files/[^"]*)"', ask(viewer, f"/run/{path.relative_to(root)}").body.decode()
    )
    assert {link.rpartition("/")[2] for link in links} == {p.name for p in path.iterdir()}
    assert all(ask(viewer, link).status == 200 for link in links)


def test_the_command_of_a_run_with_code_of_the_user_names_its_directory(root, viewer):
    change_facts(root, overrides=["algo=mine"], code={"mine.py": "0123"})
    page = text(ask(viewer, f"/run/{rows(viewer)[0]['id']}"))
    assert "fedbench --config-dir DIR algo=mine" in page


def test_a_damaged_run_has_a_page_with_its_fault_and_its_files(root, viewer):
    path = fake_run(root, None, "term")
    (path / "rounds.jsonl").write_text("torn")
    page = text(ask(viewer, f"/run/{path.relative_to(root)}"))
    assert "damaged" in page
    assert "rounds.jsonl: it has changed since it was written" in page


# ---- files


def test_files_have_their_types_and_may_run_nothing_of_the_viewers(root, viewer):
    path = rows(viewer)[0]["id"]
    for name, kind in {
        "config.yaml": "text/plain; charset=utf-8",
        "meta.json": "application/json",
        "clients.parquet": "application/octet-stream",
        "DONE": "text/plain; charset=utf-8",
    }.items():
        answer = ask(viewer, f"/files/{path}/{name}")
        assert answer.headers["Content-Type"] == kind
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox allow-scripts ")
        assert "same-origin" not in answer.headers["Content-Security-Policy"]
        assert answer.body == (root / path / name).read_bytes()
    head = ask(viewer, f"/files/{path}/meta.json", "HEAD")
    assert (head.status, head.body) == (200, b"")


def test_reports_are_linked_and_served(root, viewer):
    for place in ("report", "published/fedfa", "synthetic_leaf", ".hidden"):
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / "index.html").write_text(f"<p>{place}</p>")
    page = ask(viewer, "/").body.decode()
    links = re.findall(r'<a href="(/files/[^"]*)">([^<]*)</a>', page)
    assert [name for _, name in links] == ["report", "synthetic_leaf", "published/fedfa"]
    for link, name in links:
        assert ask(viewer, link).body.decode() == f"<p>{name}</p>"
    folder = ask(viewer, "/files/report")
    assert (folder.status, folder.headers["Location"]) == (302, "/files/report/index.html")


def test_a_link_of_a_report_to_a_run_leads_to_its_page(viewer):
    path = rows(viewer)[0]["id"]
    answer = ask(viewer, f"/files/{path}/")
    assert (answer.status, answer.headers["Location"]) == (302, f"/run/{path}")
    assert ask(viewer, answer.headers["Location"]).status == 200


# ---- refusals


@pytest.mark.parametrize(
    "path",
    [
        "/files/../secret.txt",
        "/files/%2e%2e/secret.txt",
        "/files/..%2fsecret.txt",
        "/files/synthetic_leaf/../../secret.txt",
        "/files//etc/passwd",
        "/files/%2Fetc%2Fpasswd",
        "/files/../../../../../../etc/passwd",
        "/files/link.txt",
        "/files/out/secret.txt",
        "/files/out/",
        "/files/out/run/seed_0/meta.json",
        "/files/page/",
        "/files/loop",
        "/files/pipe",
        "/files/a%00b",
        "/files/%ff%fe",
        "/files/missing.txt",
        "/files/synthetic_leaf/",
        "/files/",
        "/files",
        "/run/",
        "/run/synthetic_leaf",
        "/run/../run/seed_0",
        "/run/out/run/seed_0",
        "/index.html",
        "//example.org/",
        "/files/.env",
        "/files/%2eenv",
        "/files/.git/config",
        "/files/.report/",
        "/files/shown.txt",
    ],
)
def test_only_what_the_directory_contains_is_served(root, path):
    outside = root.parent
    fake_run(outside, "run", "fedavg").rename(outside / "seed_0")
    (outside / "index.html").write_bytes(SECRET)
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "out").symlink_to(outside)
    (root / "page").mkdir()
    (root / "page" / "index.html").symlink_to(outside / "secret.txt")
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    for name in (".env", ".git/config", ".report/index.html"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(SECRET)
    (root / "shown.txt").symlink_to(root / ".env")
    with viewing(root) as viewer:
        answer = ask(viewer, path)
        assert answer.status == 404
        assert SECRET not in answer.body
        assert b"root:" not in answer.body
        assert {row["path"].split("/")[0] for row in rows(viewer)} == {"synthetic_leaf"}


@pytest.mark.parametrize(
    "host",
    ["example.org:{0}", "127.0.0.1", "localhost:1", "127.0.0.1.example.org:{0}", "[::2]:{0}", ""],
)
def test_another_host_is_refused_also_for_files(viewer, host):
    name = host.format(viewer.server_port)
    for path in ("/", "/runs.json", "/files/secret.txt"):
        answer = ask(viewer, path, Host=name)
        assert answer.status == 403
        assert b"synthetic_leaf" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_this_machine_may_ask(viewer, host):
    assert ask(viewer, "/runs.json", Host=f"{host}:{viewer.server_port}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_requests_that_could_write_are_refused(viewer, method):
    assert ask(viewer, "/runs.json", method).status == 501


def test_it_listens_on_this_machine_only(viewer):
    assert viewer.server_address == ("127.0.0.1", viewer.server_port)


def test_pages_allow_their_own_scripts_only(viewer):
    page = ask(viewer, "/").body.decode()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 1 + page.count("<script>")
    assert ask(viewer, "/").headers["X-Frame-Options"] == "DENY"


def test_hostile_names_are_escaped(root):
    bad = HOSTILE.format(0)
    change_facts(root, data=bad, algo=bad, model=bad, overrides=[bad], remarks=[bad])
    for path in root.rglob("config.yaml"):
        edit(path, lambda text: text + f"note: {json.dumps(bad)}\n")
    failed = fake_run(root, None, "term", status="failed", error=bad)
    failed.rename(failed.parent / os.fsdecode(b"<script>alert(3)\xff"))
    with viewing(root) as viewer:
        listed = rows(viewer)
        assert {row["algo"] for row in listed} == {bad, "term"}
        for path in ("/", *(f"/run/{row['id']}" for row in listed)):
            page = ask(viewer, path)
            assert page.status == 200
            assert b"alert(" not in re.sub(rb"&lt;script&gt;alert|onerror=alert", b"", page.body)
            assert b"<img src=x" not in page.body
        (spec, *_) = charts(viewer, listed[-1]["id"])
        assert bad in spec["title"]["text"]


# ---- errors


@pytest.fixture
def handled(monkeypatch):
    """An event that is set when the server has handled an error of a connection."""
    event = Event()
    handle_error = Viewer.handle_error

    def handle(*args):
        handle_error(*args)
        event.set()

    monkeypatch.setattr(Viewer, "handle_error", handle)
    return event


def test_a_browser_that_leaves_is_no_error(viewer, handled, capfd):
    connection = socket.create_connection(viewer.server_address)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.send(b"GET / HT")
    connection.close()  # resets it
    assert handled.wait(60)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (ConnectionResetError("gone"), ""),
        (BrokenPipeError("gone"), ""),
        (ValueError("odd"), "fedbench: a request failed: odd\n"),
    ],
    ids=str,
)
def test_an_error_while_an_error_is_sent(viewer, handled, capfd, monkeypatch, error, printed):
    def send_error(*args, **options):
        raise error

    monkeypatch.setattr(BaseHTTPRequestHandler, "send_error", send_error)
    with pytest.raises(RemoteDisconnected):
        ask(viewer, "/missing")
    assert handled.wait(60)
    assert capfd.readouterr().err == printed


def test_an_error_is_explained(viewer, monkeypatch):
    def fail(paths, root):
        raise ValueError("<the disk> is full")

    monkeypatch.setattr(server, "run_charts", fail)
    answer = ask(viewer, "/charts.json?run=x")
    assert (answer.status, text_of(answer)) == (500, "Internal Server Error <the disk> is full")


# ---- the command


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_it(root, capsys, number, status):
    port = free_port()

    def end():
        for _ in range(6000):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)
            else:
                os.kill(os.getpid(), number)
                return

    thread = Thread(target=end)
    thread.start()
    assert main(["view", str(root), "--port", str(port)]) == status
    thread.join()
    out = capsys.readouterr().out
    assert f"http://127.0.0.1:{port}/ (Ctrl-C ends)" in out
    assert out.endswith("no longer viewing\n") is (status == 0)


def test_a_port_in_use_is_reported_and_the_default_gives_way(root, viewer, refuse, monkeypatch):
    message = refuse("view", str(root), "--port", str(viewer.server_port))
    assert f"--port {viewer.server_port} cannot be used" in message
    assert "leave it out" in message
    monkeypatch.setattr(server, "PORT", viewer.server_port)
    with Viewer(root) as other:
        assert other.server_port != viewer.server_port


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("view nowhere", "DIR=nowhere is not a directory"),
        ("view . --port 70000", "--port 70000 cannot be used"),
        ("view . --port x", "invalid int value"),
    ],
)
def test_wrong_requests(refuse, words, part):
    assert part in refuse(*words.split())
