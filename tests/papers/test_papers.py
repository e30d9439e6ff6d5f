"""The papers on record: equal to their transcription where it is at hand, and possible to run."""

import ast
import functools
import os
import re

import pytest
import yaml
from tools import ALGORITHMS, ROOT, make

from fedbench.analysis.claims.judge import judge
from fedbench.analysis.matching import Evidence
from fedbench.config.compose import compose_run
from fedbench.config.overrides import options
from fedbench.core.config_values import leaves
from fedbench.core.metrics import CATALOGUE
from fedbench.papers.checks import Compare, Limit, PropertyTest, Several
from fedbench.papers.registry import papers
from fedbench.papers.schema import Reduction, Reported
from fedbench.runs.cached_run import cached_run

PAPERS = tuple(papers())
# the numbers of public benchmarks are of several papers
TRANSCRIBED = tuple(paper for paper in PAPERS if paper != "known")
ORIGINAL = ROOT / os.environ.get("FEDBENCH_PAPERS", "")
at_hand = pytest.mark.skipif(
    not os.environ.get("FEDBENCH_PAPERS"),
    reason="FEDBENCH_PAPERS, the papers as YAML, is not set",
)
every_transcribed = pytest.mark.parametrize("name", TRANSCRIBED)
every_paper = pytest.mark.parametrize(
    "paper",
    papers().values(),
    ids=PAPERS,
)
# claims of the transcription whose sentence another one tests, or that the paper does not make
REMOVED = {
    "adafed": "c02 c03 c04 c06 c07 c08 c09 c10 c11 c20 c21 c22 c23 c24 c25 c26 c27 c28 c29 c31 "
    "c33 c34 c35",
    "adafedadam": "c04 c07 c08 c09 c11 c12",
    "fafed": "c05 c06",
    "fedcada": "c06 c08 c11 c14 c18 c22",
    "fedfa": "c04",
}


def parts_of(check):
    """The checks that a check consists of."""
    if isinstance(check, Several):
        return [part for several in check.checks for part in parts_of(several)]
    return [] if check is None else [check]


def rows_of(paper):
    """All rows, of tables and of figures."""
    return [
        row
        for part in (
            *paper.tables,
            *paper.figures,
        )
        for row in paper.rows(part)
    ]


def ids(entries):
    return [entry["id"] for entry in entries]


# ---- against the transcription


@functools.cache
def theirs(name):
    return yaml.safe_load((ORIGINAL / f"{name}.yaml").read_text(encoding="utf-8"))


@functools.cache
def written(name):
    text = (ROOT / "fedbench" / "papers" / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@functools.cache
def text_of(name):
    path = ORIGINAL / "text" / theirs(name)["paper"]["source_file"]
    if not path.exists():
        pytest.skip("the texts of the papers are not in FEDBENCH_PAPERS")
    return path.read_text(encoding="utf-8")


@at_hand
@every_transcribed
def test_every_printed_row_is_there_number_by_number(name):
    tables = papers()[name].tables
    printed = [table for table in theirs(name)["tables"] if table["kind"] in ("results", "missing")]
    assert list(tables) == ids(printed)
    for source, table in zip(printed, tables.values(), strict=True):
        assert list(table.setups) == source["setups"]
        assert list(table.columns) == ids(source["columns"])
        rows = [row for row in table.rows if row.values]
        for row, other in zip(rows, source["rows"], strict=True):
            assert (row.setup, row.algo) == (
                other["setup"],
                other["algo"],
            ), table.id
            numbers = {
                k: Reported(
                    v["mean"],
                    v["std"],
                )
                for k, v in other["values"].items()
            }
            assert row.values == numbers, row
            assert other["hyperparameters"].items() <= row.hyperparameters.items(), row


@at_hand
@every_transcribed
def test_all_other_entries_have_their_counterpart(name):
    source = theirs(name)
    mine = papers()[name]
    assert ids(source["setups"]) == list(mine.setups)
    given = ids(source["figures"])
    assert [figure for figure in mine.figures if figure in given] == given  # others are ours
    for kind in ("gaps", "contradictions"):
        given = ids(source[kind])
        assert ids(written(name)[kind])[: len(given)] == given  # more may follow
    given = ids(source["claims"])
    kept = [claim for claim in given if claim not in REMOVED.get(name, "").split()]
    assert [claim for claim in mine.claims if claim in given] == kept
    for other in source["setups"]:
        setup = mine.setups[other["id"]]
        assert other["clients"] in (setup.clients, None)
        assert setup.seeds == (other["seeds"] or 1)
        assert set(setup.gaps) >= set(other["gaps"])
    others = {other["id"]: other for other in source["metrics"]}
    for metric in mine.metrics.values():
        other = others[metric.id]
        sizes = map(int, re.findall(r"\d+", metric.field))
        assert metric.direction == other["direction"]
        assert other.get("fraction_percent") in (None, *sizes)


def words(text):
    return re.findall(r"[a-z0-9.]+", text.lower().replace("-", " "))


def sequences(text):
    """All sequences of eight words."""
    found = words(text)
    return {tuple(found[i : i + 8]) for i in range(len(found) - 7)}


@at_hand
@every_transcribed
def test_captions_and_claims_are_in_our_words(name):
    """No eight words in a row are the paper's."""
    paper = papers()[name]
    printed = sequences(text_of(name))
    lines = {" ".join(words(line)) for line in text_of(name).splitlines()}
    texts = [
        part.caption
        for part in (
            *paper.tables.values(),
            *paper.figures.values(),
        )
    ]
    for claim in paper.claims.values():
        texts += [claim.text, claim.tested, claim.beyond, claim.refuted]
    for text in filter(None, texts):
        assert not sequences(text) & printed, text
        assert " ".join(words(text)) not in lines, text


# ---- in itself


@every_paper
def test_tables_and_figures_are_complete(paper):
    assert not set(paper.tables) & set(paper.figures)
    for setup in paper.setups.values():
        assert set(setup.profiles) == {"cpu", "smoke"}
    for table in paper.tables.values():
        assert table.tuning is not None, table.id
        assert set(table.setups) == {row.setup for row in table.rows}
        keys = [
            (
                row.setup,
                row.algo,
                *sorted(row.hyperparameters.items()),
            )
            for row in table.rows
        ]
        assert len(keys) == len(set(keys)), table.id
    for figure in paper.figures.values():
        assert bool(figure.rows) == (figure.kind != "schematic"), figure.id


@every_paper
def test_every_setup_and_method_can_be_chosen_and_is_used(paper):
    rows = rows_of(paper)
    experiments = {setup.experiment for setup in paper.setups.values()}
    assert experiments <= set(options("experiment"))
    assert {experiment.partition("/")[0] for experiment in experiments} == {paper.id}
    assert {method.algo for method in paper.methods.values()} <= set(options("algo"))
    drawn = {setup for figure in paper.figures.values() for setup in figure.setups}
    assert {row.setup for row in rows} | drawn == set(paper.setups)
    assert {row.algo for row in rows} == set(paper.methods)


def composed(composer, paper, row, cut):
    """The keys of a row with those of a profile, and the configuration that they make."""
    keys = {**cut, **paper.overrides(row)}
    experiment = paper.setups[row.setup].experiment
    return keys, composer.config(
        experiment,
        paper.methods[row.algo].algo,
        keys,
    ).tree


@every_paper
def test_the_keys_of_every_row_are_keys_of_its_method(paper, composer):
    """Each method is composed for its first row; the others may set no other keys."""
    trees = {}
    for row in rows_of(paper):
        algo = paper.methods[row.algo].algo
        if algo not in trees:
            keys, trees[algo] = composed(composer, paper, row, {})
            assert keys.items() <= leaves(trees[algo]).items()
        keys = paper.overrides(row)
        assert set(keys) <= set(leaves(trees[algo])), row
        section = {key: value for key, value in trees[algo]["algo"].items() if key != "_target_"}
        for key, value in keys.items():
            if key.startswith("algo."):
                section[key.removeprefix("algo.")] = value
        if algo in ALGORITHMS and not any(isinstance(value, dict) for value in section.values()):
            make(algo, **section)  # refuses values that it does not know


@every_paper
def test_profiles_set_keys_that_are_there(paper, composer):
    first = {row.setup: row for row in reversed(rows_of(paper))}
    seen = set()
    for name, setup in paper.setups.items():
        for cut in setup.profiles.values():
            assert cut != Reduction()
            if name in first and not seen.issuperset(cut.set):
                seen |= set(cut.set)
                keys, tree = composed(composer, paper, first[name], cut.set)
                keys.pop("model", None)  # a choice of its group
                assert keys.items() <= leaves(tree).items()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One short run: what rounds.jsonl and clients.parquet hold."""
    chosen = ["experiment=fedfa/table2_synthetic_iid", "algo=fedavg", "rounds=1", "device=cpu"]
    place = f"results_dir={tmp_path_factory.mktemp('results')}"
    return cached_run(compose_run([*chosen, "participation=1.0", place])).run


@every_paper
def test_metrics_and_fields_are_measured(paper, run):
    measured = set(run.last_round())
    curves = measured | {metric.name for metric in CATALOGUE.values() if metric.needs}
    assert {"accuracy", "train_loss", "client", "round"} <= set(run.clients())
    for metric in paper.metrics.values():
        kind, _, client = metric.field.partition(":")
        if kind == "client":
            tables = [table for table in paper.tables.values() if metric.id in table.columns]
            clients = [paper.setups[name].clients for table in tables for name in table.setups]
            assert 0 <= int(client) < min(clients)
        else:
            assert metric.field in measured
    for figure in paper.figures.values():
        assert set(figure.fields) <= curves
    for claim in paper.claims.values():
        for check in parts_of(claim.check):
            fields = {check.field} if isinstance(check, Limit) else getattr(check, "fields", ())
            assert curves.union(["accuracy", "moments"]).issuperset(fields), claim.id


@every_paper
def test_every_claim_states_its_test_and_its_refutation(paper):
    for claim in paper.claims.values():
        assert claim.refuted, claim.id
        assert claim.tested if claim.check else claim.beyond and not claim.tested, claim.id


@every_paper
def test_claims_name_tests_and_rows_that_exist(paper):
    for claim in paper.claims.values():
        if isinstance(claim.check, PropertyTest):
            path, _, name = claim.check.test.partition("::")
            tree = ast.parse((ROOT / path).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        verdict = judge(claim, Evidence(paper, []))  # finds the rows that it compares
        assert verdict.word != "not testable" or claim.check is None, claim.id


@every_paper
def test_profiles_cut_alike_the_setups_that_a_claim_compares(paper):
    """Differences of a method between two setups must not come from the cuts."""
    for claim in paper.claims.values():
        if (paper.id, claim.id) == ("fedcada", "c17"):
            continue  # compares two networks
        for check in parts_of(claim.check):
            if isinstance(check, Compare) and check.at is not None:
                cut = paper.setups[check.at.setup].profiles
                assert all(paper.setups[x].profiles == cut for x in check.setups), claim.id


@pytest.mark.parametrize("name", PAPERS)
def test_the_file_of_a_paper_can_be_reviewed_line_by_line(name):
    """No line has more than 120 columns, and no anchor sends the reader to another place."""
    text = (ROOT / f"fedbench/papers/{name}.yaml").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 120
    anchors = (yaml.AnchorToken, yaml.AliasToken)
    assert not [token for token in yaml.scan(text) if isinstance(token, anchors)]
