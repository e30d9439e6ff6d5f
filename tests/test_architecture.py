"""The packages: which may import from which, and that nothing but a method's own file knows it by
name.
"""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter

import pytest
from tools import ALGORITHMS, ROOT

PACKAGE = ROOT / "fedbench"
FILES = sorted(PACKAGE.rglob("*.py"))
PACKAGES = {
    ".".join(p.relative_to(ROOT).parts) for p in (PACKAGE, *PACKAGE.rglob("*")) if p.is_dir()
}

# package -> the packages that it may import from; a module at the top counts as a package
MAP = (ROOT / "docs" / "adr" / "0012-packages.md").read_text(encoding="utf-8")
ALLOWED = {
    "cli": {"commands", "config", "core", "runs"},
    "__main__": {"cli"},
    "api": {"commands", "config", "core", "runs"},
    "__init__": {"api", "commands", "core", "runs"},  # when a public name is first used
}
for package_name, below in re.findall(r"^\| `(\w+)` \|(.*)\|$", MAP, re.M):
    ALLOWED[package_name] = set(re.findall(r"`(\w+)`", below))


@cache
def imports(path):
    """Modules of the package that a file imports anywhere, relative to the package."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in PACKAGES:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    own = {name for name in names if name.split(".")[0] == "fedbench"}
    return {name.removeprefix("fedbench").lstrip(".") for name in own} - {"__version__"}


def name(path):
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def package(path):
    return name(path).split("/")[0]


def files(*packages):
    return [p for p in FILES if package(p) in packages]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_package_imports_only_from_packages_below(path):
    here = package(path)
    others = {m.split(".")[0] for m in imports(path)} - {here, ""}
    assert others <= ALLOWED[here]


def test_every_package_is_on_the_map_and_no_imports_go_in_circles():
    assert {package(p) for p in FILES} == set(ALLOWED)
    modules = {name(p).replace("/", "."): p for p in FILES}
    graph = {}
    for module, path in modules.items():
        imported = {i if i in modules else f"{i}.__init__" for i in imports(path) if i}
        graph[module] = imported & modules.keys() - {module}
    TopologicalSorter(graph).prepare()  # or CycleError


def test_inside_the_packages():
    """What is shared by methods knows no method; the lowest module of a package knows nothing of
    the others.
    """
    for path in FILES:
        if path.parent.name == "algorithms":
            assert all(m.startswith(("core.", "algorithms.shared.")) for m in imports(path)), path
        if name(path).startswith("data/sources/"):
            assert all(
                m.startswith(("core.", "data.files.", "data.examples", "data.sources."))
                for m in imports(path)
            )
    for path in (PACKAGE / "core/errors.py", PACKAGE / "analysis/stats.py"):
        assert not imports(path), path


def test_hydra_is_known_to_the_entrance_only():
    """And only what is public in it."""

    def knows(path, what):
        return re.search(rf"^\s*(import|from) ({what})", path.read_text(), re.M)

    known = {name(p) for p in FILES if knows(p, "hydra|omegaconf")}
    assert known == {
        "config/compose", "config/explanations", "config/overrides",
    }  # fmt: skip
    assert not [name(p) for p in FILES if knows(p, r"hydra\._internal")]


def test_nothing_is_patched_to_start_runs():
    for path in FILES:
        assert not re.search(r"sys\.argv(\[.*\])? *=[^=]|hydra\.main", path.read_text()), path


def test_no_method_is_known_by_name_outside_its_file():
    """Neither the loop nor the trainer, the metrics or the reports branch on one."""
    for path in FILES:
        if name(path).startswith(("algorithms/", "papers/", "analysis/claims/")):
            continue
        tree = ast.parse(path.read_text())
        words = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        words |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        # a section of the configuration, and the variables of a local phase
        known = set(ALGORITHMS) - {"local"}
        if path.parent.name == "models":
            known -= {"stem"}  # of a ResNet
        assert not words & known, path


def test_nothing_synchronises_inside_a_round():
    """No host copy, number or Python loop over clients where rounds are computed."""
    rounds = ("simulation/loop", "simulation/cohort", "simulation/oracles")
    for path in [*files("algorithms"), *(p for p in FILES if name(p) in rounds)]:
        calls = {
            n.func.attr for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        }  # fmt: skip
        assert not calls & {"item", "cpu", "tolist"}, path
