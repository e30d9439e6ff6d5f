"""The YAML of a paper: the documented example is read, and faults are reported with their place."""

import re
import shutil
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml
from tools import ROOT

from fedbench.analysis.claims.judge import judge
from fedbench.analysis.matching import Evidence
from fedbench.config import compose as job
from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.papers.checks import Check
from fedbench.papers.registry import read_paper

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
    verdicts = [
        judge(
            claim,
            Evidence(p, []),
        )
        for claim in p.claims.values()
    ]
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


FAULTS = yaml.safe_load((ROOT / "tests" / "papers" / "faults.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "fault",
    FAULTS,
    ids=[fault["message"][:60] for fault in FAULTS],
)
def test_a_fault_is_reported_with_its_place(tmp_path, fault):
    assert fault["right"] in EXAMPLE
    path = write(
        tmp_path,
        EXAMPLE.replace(fault["right"], fault["wrong"], 1),
    )
    with pytest.raises(
        RequestError,
        match=re.escape(fault["message"]),
    ) as error:
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


def test_a_fault_of_ours_is_not_reported_as_the_users(tmp_path, monkeypatch):
    """Only a RequestError is a fault of the file; a wrong function ends with its own error."""
    made = read_paper(write(tmp_path))
    monkeypatch.setattr(OWN_CHECKS, "c04_fedavg_falls_less", lambda evidence: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        judge(made.claims["c04"], Evidence(made, []))
