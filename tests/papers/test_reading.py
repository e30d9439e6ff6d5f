"""The YAML of a paper: the documented example is read, and each fault is reported with its place before any run."""

import re
import shutil
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from tools import ROOT

from fedbench.analysis.claims.judge import judge
from fedbench.analysis.matching import Evidence
from fedbench.config import compose as job
from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.core.metrics import is_field
from fedbench.papers.checks import Check
from fedbench.papers.registry import read_paper
from fedbench.simulation import evaluation

DOCUMENT = (ROOT / "docs" / "adding_a_paper.md").read_text()
CONFIG, EXAMPLE = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.S)
(CODE,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)
OWN_CHECKS = module_from_spec(ModuleSpec("fedbench.analysis.claims.example", None))
exec(CODE, vars(OWN_CHECKS))


@pytest.fixture(autouse=True)
def _own_checks(monkeypatch):
    monkeypatch.setitem(sys.modules, OWN_CHECKS.__name__, OWN_CHECKS)


def write(tmp_path, text=EXAMPLE, name="example"):
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return path


def paper(path: Path):
    made = read_paper(path)
    for claim in made.claims.values():
        judge(claim, Evidence(made, []))
    return made


def test_the_documented_example_is_a_paper(tmp_path):
    p = paper(write(tmp_path))
    assert p.id == "example"
    assert list(p.tables) == ["table1", "table2"]
    assert list(p.figures) == ["figure1"]
    assert p.overrides(p.tables["table2"].rows[0]) == {"local.lr": 0.001}
    verdicts = [judge(claim, Evidence(p, [])) for claim in p.claims.values()]
    assert [verdict.word for verdict in verdicts] == ["not run"] * 5 + ["not testable"]
    # setups x metrics; ranks; 2 methods; 1; setups x measures
    assert [len(verdict.comparisons) for verdict in verdicts] == [4, 1, 2, 1, 4, 0]


def test_the_documented_config_is_one(tmp_path, monkeypatch):
    """Composed with either method it gives a configuration: no key, choice or preset is unknown."""
    tree = tmp_path / "conf"
    shutil.copytree(ROOT / "conf", tree)
    folder = tree / "experiment" / "example"
    folder.mkdir()
    (folder / "table1_mild.yaml").write_text(CONFIG)
    monkeypatch.setattr(job, "CONFIG_DIR", tree)
    for algo in ("fedavg", "fedprox"):
        config = compose_run(["experiment=example/table1_mild", f"algo={algo}"]).tree
        assert (config["rounds"], config["participation"]) == (100, 10)
        assert config["local"]["lr"] == 0.01
    assert config["algo"]["mu"] == 1.0


def test_every_kind_of_check_is_documented():
    section = DOCUMENT.split("\n## Checks\n")[1].split("\n### ")[0]
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", section, re.M)
    documented = set(re.findall(r"[a-z_]+", " ".join(rows)))
    kinds = [get_type_hints(check)["kind"] for check in get_args(Check)]
    assert documented == {name for kind in kinds for name in get_args(kind)}


FAULTS = [
    # references
    ("columns: [avg, std, worst30]", "columns: [avg, std, worst31]",
     "tables: table1: columns 3: must be one of avg, std, worst30; got 'worst31'; did you mean worst30?"),
    ("values: {avg: 58.0, std: 25.0}", "values: {avg: 58.0, sdt: 25.0}",
     "tables: table1: row 2: column must be one of avg, std, worst30; got 'sdt'"),
    ("{setup: strong, algo: fedprox", "{setup: weak, algo: fedprox",
     "row 4: setup must be one of mild, strong; got 'weak'"),
    ("{setup: mild, algo: fedprox, hyper", "{setup: mild, algo: fedprx, hyper",
     "tables: table1: rows 2: algo: must be one of fedavg, fedprox; got 'fedprx'; did you mean fedprox?"),
    ("hyperparameters: {lr: 0.1}", "hyperparameters: {rate: 0.1}",
     "tables: table2: rows 3: the hyperparameter rate has no config key; add it to keys"),
    ("field: accuracy_worst30", "field: accuracy_worst31",
     "metrics: worst30: field: must be a number that runs have, such as train_loss; got 'accuracy_worst31'"),
    ("{id: c02", "{id: c01", "claims: two entries have the id c01"),
    # types
    ("values: {avg: 58.0,", "values: {avg: n/a,", "rows 2: values: avg: mean: must be a valid number"),
    ("values: {avg: 58.0,", "values: {avg: [58.0, 1.0, 2.0],", "rows 2: values: avg: must be a number or [number, ±]"),
    ("label: average %, direction: higher,", "label: average %,", "metrics: avg: lacks direction"),
    ("direction: higher, field: accuracy_mean", "direction: up, field: accuracy_mean",
     "metrics: avg: direction: must be one of higher, lower, None; got 'up'"),
    ("  seeds: 5\n", "  seeds: 0\n", "setups: mild: seeds: must be > 0, got 0"),
    ("authors: [A. Author]", "authors: A. Author", "paper: authors: must be a list, got 'A. Author'"),
    ("seeds: 1}}", "sedes: 1}}", "setups: mild: profiles: smoke: unknown key 'sedes'"),
    # the file
    ("gaps:\n- {id", "gasp: []\ngaps:\n- {id", "unknown key 'gasp'"),
    ("paper: {id: example", "paper: {id: fedfa", "the id of a paper is the name of its file; got 'fedfa'"),
    ("contradictions:\n- {id: x01", "contradictions:\n  x: {id: x01", "contradictions: must be a list"),
    ("claims:\n", "claims: [\n", "is not valid YAML ("),
    # figures
    ("kind: curves\n", "kind: curvs\n", "figures: figure1: kind must be one of curves,"),
    ("  setups: [mild, strong]\n  fields", "  fields", "figures: figure1: a figure of kind curves needs setups"),
    ("kind: curves\n", "kind: sweep\n  parameter: lr\n", "figures: figure1: no run has the parameter 'lr'"),
    # checks
    ("kind: function", "kind: funtcion", "claims: c04: check: Input tag 'funtcion' found using 'kind'"),
    ("check: null", "check: [best]", "claims: c06: check: must be a valid dictionary or object"),
    ("kind: compare, table: table1, setups: [mild, strong]", "kind: compare, table: table9, setups: [mild, strong]",
     "claims: c01: check: compare: table: must be one of table1, table2; got 'table9'"),
    ("setup: mild, algo: fedavg, metric: avg, over: lr", "setup: mild, algo: fedprox, metric: avg, over: lr",
     "claims: c02: table2 needs at least two rows of fedprox on mild, all with lr"),
    ("better: fedavg, worse: others", "better: fedagv, worse: others",
     "claims: c05: check: curves: better 1: must be one of fedavg, fedprox, others, all; got 'fedagv'"),
    ("worse: others", "worse: [fedprox, {algo: fedprox, mu: 99}]",
     "claims: c05: check: curves: worse {'algo': 'fedprox', 'mu': 99} selects no run of figure1 on mild"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("right", "wrong", "message"), FAULTS, ids=[w.strip()[:40] or m[:40] for _, w, m in FAULTS]
)
def test_a_fault_is_reported_with_its_place(tmp_path, right, wrong, message):
    assert EXAMPLE.count(right) >= 1
    path = write(tmp_path, EXAMPLE.replace(right, wrong, 1))
    with pytest.raises(RequestError, match=re.escape(message)) as error:
        paper(path)
    assert str(error.value).startswith("example.yaml")


def test_a_function_that_does_not_exist(tmp_path, monkeypatch):
    made = read_paper(write(tmp_path))
    monkeypatch.delattr(OWN_CHECKS, "c04_fedavg_falls_less")
    with pytest.raises(
        RequestError, match="needs a function c04_... in fedbench/analysis/claims/example.py"
    ) as error:
        judge(made.claims["c04"], Evidence(made, []))
    assert str(error.value).startswith("example.yaml: claims: c04: ")


def test_a_row_that_does_not_exist(tmp_path):
    text = EXAMPLE.replace(
        "at: {table: table1, setup: strong}", "at: {table: table2, setup: strong}"
    )
    with pytest.raises(RequestError, match="claims: c03: table2 has no row of fedavg on strong"):
        paper(write(tmp_path, text))


def test_a_fault_of_ours_is_not_reported_as_the_users(tmp_path, monkeypatch):
    """Only a RequestError is a fault of the file; a function that is wrong ends with its own error."""
    made = read_paper(write(tmp_path))
    monkeypatch.setattr(OWN_CHECKS, "c04_fedavg_falls_less", lambda evidence: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        judge(made.claims["c04"], Evidence(made, []))


def test_fields_are_those_that_runs_have():
    measured = evaluation.accuracy_metrics(np.array([0.5, 1.0]), np.array([1, 1]))
    others = ("train_loss", "update_norm", "client:12", "error_rsd_weighted", "train_perplexity")
    unknown = [name for name in (*measured, *others) if not is_field(name)]
    assert not unknown, f"add {unknown} to _FIELD in fedbench/core/metrics.py"
    wrong = ("accuracy_worst15", "accuracy", "client:x", "loss", 3, None)
    assert not any(map(is_field, wrong))
    tails = {int(name[14:]) for name in measured if re.fullmatch(r"accuracy_worst\d+", name)}
    assert tails == set(evaluation.TAILS)
