"""What a plan says of its claims: the seeds that would decide them, next to the planned ones."""

import pytest
from fake_runs import fake_row

from fedbench.analysis.matching import Evidence
from fedbench.analysis.power import needed
from fedbench.commands.planned_power import power_lines
from fedbench.commands.readable_runs import ReadableRuns
from fedbench.papers.plan import plan
from fedbench.papers.registry import papers
from fedbench.runs.results import Results

ADAM = papers()["adafedadam"]


def table(lines):
    """Claim -> columns of its line."""
    return {line.split()[0]: line.split(maxsplit=4)[1:] for line in lines[1:-1]}


def key(row):
    return row.setup, ADAM.methods[row.algo].algo, str(ADAM.overrides(row))


def test_a_line_per_claim_about_the_planned_rows(tmp_path):
    """Without runs the spread is that of the printed ±; three seeds of the paper are planned, or as many as asked."""
    names = ["adafedadam/table4"]
    lines = power_lines(names, plan(names, "full"), ReadableRuns(tmp_path))
    assert lines[0].split() == ["claims", "for", "against", "planned", "spread"]
    assert "a chance of 80%" in lines[-1]
    shown = table(lines)
    wanted = {key(r) for r in ADAM.tables["table4"].rows}
    for claim in ADAM.claims:
        found = needed(ADAM, claim, Evidence([]))
        concerned = found is not None and not wanted.isdisjoint(map(key, found.rows))
        assert (f"adafedadam/{claim.id}" in shown) == concerned, claim.id
        if concerned and not found.unknown:
            blocks = "never" if found.never else str(found.holds)
            assert shown[f"adafedadam/{claim.id}"][:2] == [blocks, str(found.fails)]
    assert (shown["adafedadam/c02"][0], shown["adafedadam/c03"][0]) == ("never", "24")
    more = table(power_lines(names, plan(names, "full", seeds=7), ReadableRuns(tmp_path)))
    for name in shown:
        assert shown[name][2:4] != more[name][2:4]
        assert "7" in " ".join(more[name][2:])


def test_the_spread_of_finished_runs_is_used(tmp_path):
    names = ["adafedadam/table7"]
    before = table(power_lines(names, plan(names, "full"), ReadableRuns(tmp_path)))
    for row in ADAM.tables["table7"].rows:
        if row.setup != "synthetic":
            fake_row(tmp_path, ADAM, row)
    after = table(power_lines(names, plan(names, "full"), ReadableRuns(tmp_path)))
    changed = {name for name in before if before[name] != after[name]}
    assert changed
    evidence = Evidence(Results(tmp_path))
    for claim in ADAM.claims:
        found = needed(ADAM, claim, evidence)
        if found is not None and found.measured == found.comparisons:
            assert after[f"adafedadam/{claim.id}"][3] == "measured"
            assert f"adafedadam/{claim.id}" in changed


def test_what_is_not_known_is_marked(tmp_path):
    """FedFa prints no ±: nothing is known before the first runs."""
    lines = power_lines(["fedfa/table2"], plan(["fedfa/table2"], "full"), ReadableRuns(tmp_path))
    assert {tuple(x[:2]) for x in table(lines).values()} == {("?", "?")}
    assert all(line.endswith("unknown") for line in lines[1:-1])


@pytest.mark.parametrize("name", ["adafedadam/figure6"])
def test_parts_without_claims_have_no_lines(tmp_path, name):
    assert power_lines([name], plan([name], "full"), ReadableRuns(tmp_path)) == []
