"""The record of a plan."""

from fedbench.papers.ledger import Entry, Ledger, read_ledger, write_ledger


def test_a_plan_is_read_back_as_it_was_written(tmp_path):
    assert read_ledger(tmp_path) == Ledger(())
    entries = [Entry("b/x", "fedavg", {"local.lr": 0.1, "algo.q": 1.0}, 2, "failed", "why"), Entry("a/x", "q", {}, 0)]
    write_ledger(tmp_path / "new", entries)
    assert read_ledger(tmp_path / "new") == Ledger(tuple(entries[::-1]))
    assert read_ledger(tmp_path / "new").of("b/x", "fedavg", {"algo.q": 1.0, "local.lr": 0.1}) == [entries[0]]
    for other in (("b/x", "fedavg", {}), ("b/x", "q", entries[0].set), ("a/x", "fedavg", entries[0].set)):
        assert read_ledger(tmp_path / "new").of(*other) == []


def test_other_plans_stay_on_record(tmp_path):
    """The order of the calls does not matter but for the run that both name."""
    one, two = Entry("a/x", "fedavg", {}, 0, "done"), Entry("a/x", "fedavg", {}, 1, "planned")
    write_ledger(tmp_path, [two, one])
    write_ledger(tmp_path, [Entry("a/x", "fedavg", {}, 1, "failed", "why"), Entry("a/w", "z", {}, 0)])
    found = read_ledger(tmp_path)
    assert [(e.experiment, e.seed, e.status) for e in found.entries] == [
        ("a/w", 0, "planned"), ("a/x", 0, "done"), ("a/x", 1, "failed"),
    ]  # fmt: skip
    assert {p.name for p in tmp_path.iterdir()} == {"plan.json"}
