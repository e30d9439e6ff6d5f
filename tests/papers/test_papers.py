"""What is on record of the papers: equal to the transcription where it is at hand, and something that can be run."""

import ast
import functools
import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
import yaml
from tools import ALGORITHMS, ROOT, make

from fedbench.analysis.claims.judge import judge
from fedbench.analysis.matching import Evidence
from fedbench.config.compose import compose_run
from fedbench.config.overrides import options
from fedbench.core.config_values import leaves
from fedbench.core.metrics import CATALOGUE
from fedbench.papers.checks import Compare, Function, Limit, PropertyTest, Several
from fedbench.papers.registry import papers
from fedbench.papers.schema import Reduction, Reported
from fedbench.runs.cached_run import cached_run

PAPERS = tuple(papers())
# the numbers of public benchmarks are of several papers
TRANSCRIBED = tuple(p for p in PAPERS if p != "known")
ORIGINAL = ROOT / os.environ.get("FEDBENCH_PAPERS", "")
at_hand = pytest.mark.skipif(
    not os.environ.get("FEDBENCH_PAPERS"), reason="FEDBENCH_PAPERS, the papers as YAML, is not set"
)
# claims of the transcription whose sentence another one tests, or that the paper does not make, by
# paper
REMOVED = {
    "adafed": {f"c{i:02d}" for i in (2, 3, 4, 6, 7, *range(8, 12), *range(20, 30), 31, 33, 34, 35)},
    "adafedadam": {"c04", "c07", "c08", "c09", "c11", "c12"},
    "fafed": {"c05", "c06"},
    "fedcada": {"c06", "c08", "c11", "c14", "c18", "c22"},
    "fedfa": {"c04"},
}


def ours(paper):
    return papers()[paper]


def parts_of(check):
    """The checks that a check consists of."""
    if isinstance(check, Several):
        return [part for c in check.checks for part in parts_of(c)]
    return [] if check is None else [check]


def rows_of(paper):
    """All rows, of tables and of figures."""
    return [row for part in (*paper.tables, *paper.figures) for row in paper.rows(part)]


# ---- against the transcription


@functools.cache
def theirs(paper):
    return yaml.safe_load((ORIGINAL / f"{paper}.yaml").read_text(encoding="utf-8"))


@functools.cache
def written(paper):
    return yaml.safe_load((ROOT / f"fedbench/papers/{paper}.yaml").read_text(encoding="utf-8"))


@functools.cache
def text_of(paper):
    path = ORIGINAL / "text" / theirs(paper)["paper"]["source_file"]
    if not path.exists():
        pytest.skip("the texts of the papers are not in FEDBENCH_PAPERS")
    return path.read_text(encoding="utf-8")


def checker():
    spec = importlib.util.spec_from_file_location("papers_check", ORIGINAL / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@at_hand
@pytest.mark.slow
def test_the_transcription_is_that_of_the_texts():
    if not (ORIGINAL / "text").exists():
        pytest.skip("the texts of the papers are not in FEDBENCH_PAPERS")
    done = subprocess.run(
        [sys.executable, "-B", "check.py", "text"],
        cwd=ORIGINAL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:]


@at_hand
@pytest.mark.parametrize("paper", TRANSCRIBED)
def test_every_printed_row_is_there_number_by_number(paper):
    source = {t["id"]: t for t in theirs(paper)["tables"] if t["kind"] in ("results", "missing")}
    tables = ours(paper).tables
    assert list(tables) == [i for i in source if i in tables]  # in their order
    assert set(tables) == set(source)
    for name, table in tables.items():
        printed = source[name]["rows"]
        mine = [r for r in table.rows if r.values]
        assert [(r.setup, r.algo) for r in mine] == [(r["setup"], r["algo"]) for r in printed], name
        for row, other in zip(mine, printed, strict=True):
            assert row.values == {
                k: Reported(v["mean"], v["std"]) for k, v in other["values"].items()
            }, (name, row)
            assert other["hyperparameters"].items() <= row.hyperparameters.items(), (name, row)
        assert list(table.setups) == source[name]["setups"]
        assert list(table.columns) == [c["id"] for c in source[name]["columns"]]


@at_hand
@pytest.mark.parametrize("paper", TRANSCRIBED)
def test_everything_else_has_its_counterpart(paper):
    source, mine = theirs(paper), ours(paper)
    assert [s["id"] for s in source["setups"]] == list(mine.setups)
    assert [f["id"] for f in source["figures"]] == list(mine.figures)
    for kind in ("gaps", "contradictions"):
        given, ids = [x["id"] for x in source[kind]], [x["id"] for x in written(paper)[kind]]
        assert ids[: len(given)] == given  # more may follow
    given, ids = ([x["id"] for x in part["claims"]] for part in (source, written(paper)))
    assert [i for i in ids if i in given] == [i for i in given if i not in REMOVED.get(paper, ())]
    for s in source["setups"]:
        setup = mine.setups[s["id"]]
        assert setup.clients == s["clients"] or s["clients"] is None
        assert setup.seeds == (s["seeds"] or 1)
        assert set(setup.gaps) >= set(s["gaps"])
    metrics = {m["id"]: m for m in source["metrics"]}
    for metric in mine.metrics.values():
        assert metric.direction == metrics[metric.id]["direction"]
        percent = metrics[metric.id].get("fraction_percent")
        assert percent is None or f"{percent}" in re.findall(r"\d+", metric.field)


def as_rows(check):
    """A check of the transcription with cells of rows ``a`` and ``b`` as one of the rows of two tables."""
    check = {k: v for k, v in check.items() if k != "exceptions"}
    if check["kind"] == "equal_cells":
        a, b = check.pop("a"), check.pop("b")
        assert a["algo"] == b["algo"]
        check |= {"kind": "equal_rows", "tables": [a["table"], b["table"]], "algo": a["algo"]}
        check |= {"hyperparameters": b["hyperparameters"]}
    return check


@at_hand
@pytest.mark.parametrize("paper", TRANSCRIBED)
def test_printed_numbers_are_compared_as_transcribed(paper):
    """The checks of printed numbers are the transcription's; those of runs are ours."""
    others = {c["id"]: c for c in theirs(paper)["claims"]}
    for raw in written(paper)["claims"]:
        if raw["check"] and raw["check"]["kind"] == "equal_rows":
            other = others[raw["id"]]
            assert raw["check"] == as_rows(other["check"]), raw["id"]
            assert raw["printed"] == other["paper_numbers"].replace("_", " ")


@at_hand
@pytest.mark.slow
@pytest.mark.parametrize("paper", TRANSCRIBED)
def test_every_number_occurs_in_the_text(paper):
    """As the transcription is checked: 1000 may stand there as 1,000, and 13.2 as 13.20."""
    text, check = text_of(paper), checker()
    numbers = {
        x
        for t in ours(paper).tables.values()
        for r in t.rows
        for v in r.values.values()
        for x in (v.mean, v.std)
    }
    for number in numbers - {None}:
        digits = len(repr(number).partition(".")[2]) if number % 1 else 0
        literals = [f"{number:.{d}f}" for d in range(digits, 4)]
        assert any(check.occurs(literal, text) for literal in literals), number


@at_hand
@pytest.mark.parametrize("paper", TRANSCRIBED)
def test_captions_and_claims_are_in_our_words(paper):
    """No eight words in a row are the paper's."""

    def words(text):
        return re.findall(r"[a-z0-9.]+", text.lower().replace("-", " "))

    def runs(text):
        w = words(text)
        return {tuple(w[i : i + 8]) for i in range(len(w) - 7)}

    printed, p = runs(text_of(paper)), ours(paper)
    lines = {" ".join(words(line)) for line in text_of(paper).splitlines()}
    claims = [text for c in p.claims.values() for text in (c.text, c.tested, c.beyond, c.refuted)]
    for text in [*(x.caption for x in (*p.tables.values(), *p.figures.values())), *claims]:
        assert not runs(text) & printed, text
        assert not text or " ".join(words(text)) not in lines, text


# ---- in itself


@pytest.mark.parametrize("paper", PAPERS)
def test_ids_are_unique_and_known(paper):
    p = ours(paper)
    raw = written(paper)
    for kind in (
        "metrics",
        "methods",
        "setups",
        "tables",
        "figures",
        "claims",
        "gaps",
        "contradictions",
    ):
        twice = [i for i, n in Counter(x["id"] for x in raw[kind]).items() if n > 1]
        assert not twice, kind
    assert not set(p.tables) & set(p.figures)
    for s in p.setups.values():
        assert set(s.gaps) <= set(p.gaps)
        assert set(s.profiles) == {"cpu", "smoke"}
    for t in p.tables.values():
        assert set(t.columns) <= set(p.metrics)
        assert set(t.setups) == {r.setup for r in t.rows}
        assert t.round in ("last", "best")
        settings = [(r.setup, r.algo, *sorted(r.hyperparameters.items())) for r in t.rows]
        assert len(settings) == len(set(settings)), t.id
        for r in t.rows:
            assert r.algo in p.methods
            assert set(r.values) <= set(t.columns)
    for f in p.figures.values():
        assert set(f.setups) <= set(p.setups)
        assert {r.algo for r in f.rows} <= set(p.methods)
        assert bool(f.rows) == (f.kind not in ("schematic", "labels")), f.id


@pytest.mark.parametrize("paper", PAPERS)
def test_every_setup_and_method_can_be_chosen(paper):
    p = ours(paper)
    assert {s.experiment for s in p.setups.values()} <= set(options("experiment"))
    assert {m.algo for m in p.methods.values()} <= set(options("algo"))
    assert {r.setup for r in rows_of(p)} | {s for f in p.figures.values() for s in f.setups} == set(
        p.setups
    )
    assert {r.algo for r in rows_of(p)} == set(p.methods)
    for row in rows_of(p):
        unused = {k for k, v in row.hyperparameters.items() if v is not None} - set(
            p.methods[row.algo].keys
        )
        assert not unused, row  # a printed value that sets nothing


def composed(composer, paper, row, cut):
    setup, method = paper.setups[row.setup], paper.methods[row.algo]
    keys = {
        **{k: v for k, v in cut.items() if k not in paper.overrides(row)},
        **paper.overrides(row),
    }
    return keys, composer.config(setup.experiment, method.algo, keys).tree


@pytest.mark.parametrize("paper", PAPERS)
def test_the_keys_of_every_row_are_keys_of_its_method(paper, composer):
    """Each method is composed for its first row; the others may set no other keys. The net composes every run."""
    p, trees = ours(paper), {}
    for row in rows_of(p):
        algo = p.methods[row.algo].algo
        if algo not in trees:
            keys, trees[algo] = composed(composer, p, row, {})
            assert {k: leaves(trees[algo])[k] for k in keys} == keys
        given = p.overrides(row)
        assert set(given) <= set(leaves(trees[algo])), row
        section = {k: v for k, v in trees[algo]["algo"].items() if k != "_target_"}
        section |= {k.removeprefix("algo."): v for k, v in given.items() if k.startswith("algo.")}
        if algo in ALGORITHMS and not any(isinstance(v, dict) for v in section.values()):
            make(algo, **section)  # refuses values that it does not know


@pytest.mark.parametrize("paper", PAPERS)
def test_profiles_set_keys_that_are_there(paper, composer):
    p = ours(paper)
    first = {row.setup: row for row in reversed(rows_of(p))}
    seen = set()
    for name, setup in p.setups.items():
        for cut in setup.profiles.values():
            assert cut != Reduction()
            assert cut.seeds >= 1
            if name in first and not seen.issuperset(cut.set):
                seen |= set(cut.set)
                keys, tree = composed(composer, p, first[name], cut.set)
                # that is a choice of the group
                plain = {k: v for k, v in keys.items() if k != "model"}
                assert {k: leaves(tree)[k] for k in plain} == plain


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One short run: what rounds.jsonl and clients.parquet hold."""
    chosen = [
        "experiment=fedfa/table2_synthetic_iid",
        "algo=fedavg",
        "rounds=1",
        "device=cpu",
        "participation=1.0",
    ]
    return cached_run(
        compose_run([*chosen, f"results_dir={tmp_path_factory.mktemp('results')}"])
    ).run


@pytest.mark.parametrize("paper", PAPERS)
def test_metrics_and_fields_are_measured(paper, run):
    p, measured = (
        ours(paper),
        set(run.last_round()) | {m.name for m in CATALOGUE.values() if m.needs},
    )
    clients = set(run.clients())
    assert {"accuracy", "train_loss", "client", "round"} <= clients
    for m in p.metrics.values():
        if m.field.startswith("client:"):
            used = {s for t in p.tables.values() if m.id in t.columns for s in t.setups}
            assert used
            assert all(
                0 <= int(m.field.removeprefix("client:")) < p.setups[s].clients for s in used
            )
        else:
            assert m.field in set(run.last_round())
    for f in p.figures.values():
        assert set(f.fields) <= measured
    for c in p.claims.values():
        for check in parts_of(c.check):
            named = {check.field} if isinstance(check, Limit) else set(getattr(check, "fields", ()))
            assert named <= measured | {"accuracy", "moments"}, c.id


def listed(value):
    return list(value) if isinstance(value, list) else [value]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_says_what_is_tested_and_what_would_refute_it(paper):
    for c in ours(paper).claims.values():
        assert c.refuted, c.id
        assert c.tested if c.check else c.beyond and not c.tested, c.id


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_says_who_was_tuned(paper):
    for table in ours(paper).tables.values():
        assert table.tuning is not None, table.id


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_name_what_exists(paper):
    p = ours(paper)
    for c in p.claims.values():
        if isinstance(c.check, PropertyTest):
            path, name = c.check.test.split("::")
            assert name in {
                n.name
                for n in ast.parse((ROOT / path).read_text()).body
                if isinstance(n, ast.FunctionDef)
            }
        v = judge(c, Evidence(p, []))  # finds the rows that it compares
        assert v.word != "not testable" or c.check is None, c.id


@pytest.mark.parametrize("paper", PAPERS)
def test_every_function_is_that_of_a_claim(paper):
    own = {
        c.id
        for c in ours(paper).claims.values()
        if any(isinstance(p, Function) for p in parts_of(c.check))
    }
    file = ROOT / f"fedbench/analysis/claims/{paper}.py"
    if not own:
        assert not file.exists()
        return
    public = [
        n
        for n in ast.parse(file.read_text()).body
        if isinstance(n, ast.FunctionDef) and n.name[0] != "_"
    ]
    assert sorted(n.name.partition("_")[0] for n in public) == sorted(own)
    assert all(ast.get_docstring(n).startswith("Test ") for n in public)


def test_a_kind_of_check_has_several_claims():
    """One that a single claim needs is a function."""
    uses = Counter(
        k
        for p in papers().values()
        for c in p.claims.values()
        for k in {x.kind for x in parts_of(c.check)}
    )
    assert min(uses.values()) > 1


@pytest.mark.parametrize("profile", ["cpu", "smoke"])
def test_profiles_cut_alike_what_a_claim_compares(profile):
    """Where a method is compared with itself in another setup, a difference must not come from the cuts."""

    def pairs(check):
        compared = [
            part for part in parts_of(check) if isinstance(part, Compare) and part.at is not None
        ]
        return [(setup, part.at.setup) for part in compared for setup in part.setups]

    found = [
        (p, c, pair)
        for p in papers().values()
        for c in p.claims.values()
        for pair in pairs(c.check)
    ]
    # compares two networks
    found = [(p, c, pair) for p, c, pair in found if (p.id, c.id) != ("fedcada", "c17")]
    assert {f"{p.id}/{c.id}" for p, c, _ in found} >= {
        "adafedadam/c06",
        "adafedadam/c14",
        "fedcada/c13",
    }
    for paper, claim, (better, worse) in found:
        cuts = [paper.setups[name].profiles[profile] for name in (better, worse)]
        assert cuts[0] == cuts[1], f"{paper.id}/{claim.id}"


def test_no_two_papers_share_an_experiment():
    folders = {s.experiment.split("/")[0] for p in papers().values() for s in p.setups.values()}
    assert folders == set(PAPERS)


@pytest.mark.parametrize(
    "paper", sorted(path.stem for path in (ROOT / "fedbench/papers").glob("*.yaml"))
)
def test_the_file_of_a_paper_can_be_reviewed_line_by_line(paper):
    """No line has more than 120 columns, and no anchor sends the reader to another place."""
    text = (ROOT / f"fedbench/papers/{paper}.yaml").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if len(line) > 120] == []
    assert [
        token for token in yaml.scan(text) if isinstance(token, yaml.AnchorToken | yaml.AliasToken)
    ] == []
