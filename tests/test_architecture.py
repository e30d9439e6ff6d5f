"""The layers: who may import whom, and that nothing but a method's own file knows it by name."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter

import pytest
from tools import ALGORITHMS, ROOT

PACKAGE = ROOT / "fedbench"
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path):
    """Modules of the package that a file imports anywhere, relative to the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == "fedbench" else [node.module]
        found |= {n.removeprefix("fedbench").lstrip(".") for n in names if n and n.split(".")[0] == "fedbench"}
    return found


def name(path):
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def users(module):
    return {name(p) for p in FILES if module in imports(p)}


def layer(*parts):
    return [
        p
        for p in FILES
        if name(p) in parts
        or p.relative_to(PACKAGE.parent).with_suffix("").as_posix() in parts
        or p.parent.name in parts
    ]


def modules(package):
    """A package and what is in it, but for its words, which only the command line knows."""
    return {package, *(f"{package}.{p.stem}" for p in layer(package) if p.stem not in ("__init__", "word"))}


@pytest.mark.parametrize(
    ("files", "allowed"),
    [
        (layer("errors"), set()),
        (layer("metrics"), set()),
        (layer("store"), set()),
        (layer("trees"), set()),
        (layer("types"), set()),
        (layer("optim"), {"errors", "types"}),
        (layer("algorithm"), {"optim", "types"}),
        (layer("geometry"), set()),
        (layer("sampling"), {"algorithm", "randomness"}),
        (layer("storm"), {"algorithm", "optim", "types"}),
        (layer("regularize"), {"algorithm", "optim", "randomness", "types"}),
        (layer("fedbench/noise"), {"errors", "types"}),
        (
            layer("algorithms"),
            {"algorithm", "errors", "geometry", "noise", "optim", "regularize", "sampling", "storm", "types"},
        ),
        (layer("models"), {"errors", "randomness", "vision"}),
        (layer("task"), {"errors", "initial"}),
        (
            layer("sources"),
            {
                "errors",
                *(f"data.{m}" for m in ("cache", "examples", "fetch", "pickles")),
                "vision",
                "data.sources",
                "data.sources._text",
                "data.sources._classes",
                "data.sources._nist",
                "data.sources._idx",
                "data.sources._folders",
            },
        ),
        (layer("stats"), set()),
        (layer("papers"), {"errors", "papers.reading", "papers.registry"}),
        (layer("papers/registry"), {"papers.reading"}),
        (layer("report/render", "report/views"), set()),
        (layer("report/plots"), {"errors"}),
        (layer("report/page"), {"report.views"}),
        (layer("report"), {"errors", "metrics", "stats", "store", "trees", *modules("papers"), *modules("report")}),
        (layer("reproduce/plan"), {"errors", "papers.registry", "trees"}),  # the command line shows it without torch
        (
            layer("reproduce"),
            {
                *("arguments", "build_data", "config", "errors", "job", "store", "sweep", "trees"),
                *modules("papers"),
                *modules("report"),
                *modules("reproduce"),
            },
        ),
    ],
    ids=lambda v: v[0].stem if isinstance(v, list) else "",
)
def test_lower_layers_see_only_what_is_below(files, allowed):
    assert files
    for path in files:
        assert imports(path) <= allowed, path


def test_the_loop_does_not_know_the_store_and_nobody_the_command_line():
    for path in layer("simulate", "cohort", "probes", "batches", "engine", "oracles"):
        assert not imports(path) & {"store", "runner", "config", "trackers", "progress", "evaluate"}, path
    assert users("build") == {"cli", "execute"}
    assert users("cli") == {"__main__"}
    assert users("job") == {"cli", "data_words", "reproduce/carry", "reproduce/estimate", "reproduce/word"}
    assert users("runner") == {"build", "execute"}


def test_papers_are_reported_and_reproduced_from_above():
    """What reproduces stands above what reports, and neither is known to what trains; nothing goes in circles."""
    assert users("reproduce.word") == users("report.word") == {"cli"}
    assert users("report.whole") == {"report/word", "reproduce/word"}
    assert {u.split("/")[0] for m in modules("reproduce") for u in users(m)} == {"cli", "reproduce"}
    assert {u.split("/")[0] for m in modules("report") for u in users(m)} == {"cli", "report", "reproduce"}
    assert {u.split("/")[0] for m in modules("papers") for u in users(m)} == {"papers", "report", "reproduce"}
    inside = [*layer("papers"), *layer("report"), *layer("reproduce")]
    TopologicalSorter({name(p).replace("/", "."): imports(p) for p in inside}).prepare()  # or CycleError


def test_hydra_is_known_to_the_entrance_only():
    def knows_hydra(path):
        return re.search(r"^\s*(import|from) (hydra|omegaconf)", path.read_text(), re.M)

    entrance = {"cli", "job", "sweep", "reproduce/carry", "reproduce/word"}
    assert {name(p) for p in FILES if knows_hydra(p)} == entrance


def test_no_method_is_known_by_name_outside_its_file():
    """Neither the loop nor the trainer, the metrics or the reports branch on a method."""
    for path in FILES:
        if path.parent.name in ("algorithms", "papers"):
            continue
        tree = ast.parse(path.read_text())
        words = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        words |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        known = set(ALGORITHMS) - ({"stem"} if path.parent.name == "models" else set())  # of a ResNet
        assert not words & known, path


def test_nothing_synchronises_inside_a_round():
    """No host copy, number or Python loop over clients where rounds are computed."""
    for path in layer("simulate", "cohort", "algorithm", "optim", "types", "algorithms", "oracles"):
        calls = {
            n.func.attr for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        }  # fmt: skip
        assert not calls & {"item", "cpu", "tolist"}, path


def test_sizes():
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.FunctionDef) and path.parent.name != "algorithms"
            ):  # those have a limit of their own
                doc = ast.get_docstring(node, clean=False) or ""
                assert node.end_lineno - node.lineno - doc.count("\n") <= 50, f"{path}: {node.name}"
