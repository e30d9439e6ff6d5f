#!/usr/bin/env python
"""Check by git that the published evidence follows its plans.

    python scripts/check_plans.py [results]

A run that carries the digest of a plan must come from an unchanged checkout of a commit that
contains the plan as it is now and the experiments as they were then. Since the commit of the plan,
nothing in the paper's file may have changed that decides which runs belong to a row and which
number is read from them, and nothing in the functions and constants that planned functions use.
Every plan must be committed, and a claim is in one plan only. A plan whose published runs carry
another digest must have been amended since. One that changed after its verdicts were published must
have new seeds or more looks. The settings with runs of a plan whose claims are published as
confirmed must have all planned seeds.
"""

import argparse
import ast
import csv
import io
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedbench.config.plans import FOLDER, Plan, plans_in, plans_of
from fedbench.core.config_values import from_yaml
from fedbench.runs.bundle import Bundle, is_bundle
from fedbench.runs.run import Run

_READ = ("field", "direction", "factor", "target", "rounds")  # keys of a metric
_SET = ("algo", "keys", "set")  # keys of a method


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    command = ["git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_ancestor(commit: str, other: str) -> bool:
    """Return whether a commit is an ancestor of another one, which may be unknown."""
    command = ["git", "merge-base", "--is-ancestor", commit, other]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def commit_of(plan: Plan, file: Path) -> str | None:
    """Return the commit since which a plan has not changed; None if it is not committed."""
    first = None
    for commit in git("log", "--format=%H", "--", str(file)).split():
        earlier = plans_in(at(commit, file))  # empty if it has been deleted and written again
        digests = {old.id: old.digest for old in earlier}
        if digests.get(plan.id) != plan.digest:
            break
        first = commit
    return first


def decisive(paper: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """Return what decides which runs belong to a plan's rows, and which numbers are read."""
    setups = {s["id"]: s["experiment"] for s in paper["setups"]}
    planned = {id: name for id, name in setups.items() if name in plan.experiments}
    content: dict[str, Any] = {"setups": planned}
    for section, keys in (("metrics", _READ), ("methods", _SET)):
        for entry in paper[section]:
            name = f"{section} {entry['id']}"
            content[name] = {key: entry.get(key) for key in keys}
    for table in paper["tables"]:
        content[f"{table['id']} round"] = table.get("round")
        for row in table["rows"]:
            if row["setup"] in planned:
                values = row.get("hyperparameters", {})
                content[f"{table['id']} row {row['setup']} {row['algo']} {values}"] = True
    for figure in paper["figures"]:
        if planned.keys() & set(figure.get("setups", ())):
            content[f"{figure['id']} runs"] = figure.get("runs")
            content[f"{figure['id']} setups"] = figure["setups"]
    for variant in paper.get("readings", {}).get("variants", ()):
        if variant["id"] in plan.variants:
            name = f"variant {variant['id']}"
            content[name] = {k: v for k, v in variant.items() if k not in ("title", "why")}
    return content


def code_used(source: str, claims: Iterable[str]) -> dict[str, str]:
    """Return the functions and constants of a module that the functions of claims use, by name.

    Docstrings are left out.
    """
    nodes = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            if ast.get_docstring(node) is not None:
                del node.body[0]
            nodes[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            nodes[node.targets[0].id] = node
    todo = [name for name in nodes if name.partition("_")[0] in claims]
    used = {}
    while todo:
        name = todo.pop()
        if name not in used:
            used[name] = ast.dump(nodes[name])
            for node in ast.walk(nodes[name]):
                if isinstance(node, ast.Name) and node.id in nodes:
                    todo.append(node.id)
    return used


def at(commit: str, file: Path) -> str:
    """Return the text of a file at a commit; empty if it did not exist."""
    if not git("ls-tree", "--name-only", commit, "--", str(file)):
        return ""
    return git("show", f"{commit}:./{file}")


@cache
def fault_of(
    commit: str,
    head: str,
    experiments: tuple[str, ...],
) -> str:
    """Return what is wrong with runs of a commit ``head``; empty if they may follow a plan.

    Args:
        commit: Commit of the plan.
        head: Commit of the runs, which may be unknown.
        experiments: Experiments of the plan.
    """
    if not is_ancestor(commit, head):
        return "which lacks the plan"
    folder = Path("conf/experiment")
    files = [f"{folder / name}.yaml" for name in experiments]
    files += sorted({f"{(folder / name).parent}/_*.yaml" for name in experiments})
    if git("diff", "--name-only", commit, head, "--", *files):
        return "with other experiments"
    return ""


def changes_since(commit: str, paper: str, plan: Plan) -> Iterator[str]:
    """Yield what has changed in a paper's file and functions since the commit of a plan."""
    text = Path(f"fedbench/papers/{paper}.yaml")
    before = decisive(from_yaml(at(commit, text)), plan)
    now = decisive(from_yaml(text.read_text()), plan)
    for key in sorted(before.keys() | now.keys()):
        # planned rows and checks cannot name a metric or method that did not exist
        new = key not in before and key.startswith(("metrics ", "methods "))
        if before.get(key) != now.get(key) and not new:
            yield f"{key} of {text} has changed since the plan ({commit[:8]})"

    module = Path(f"fedbench/analysis/claims/{paper}.py")
    planned = [claim for claim, test in plan.claims.items() if test.code]
    if planned:
        functions = code_used(at(commit, module), planned)
        if functions != code_used(module.read_text(), planned):
            yield f"the functions of {module} have changed since the plan ({commit[:8]})"


def faults_of_run(
    run: Run,
    plan: Plan,
    commit: str,
) -> Iterator[str]:
    """Yield the faults of a run that carries the digest of a plan, which a commit contains."""
    seed, experiment = run.meta["seed"], run.meta["experiment"]
    if seed not in plan.every_seed or experiment not in plan.experiments:
        yield "is not among the planned runs"
    head = str(run.meta.get("git_commit"))
    if run.meta.get("git_dirty") is not False:
        yield "comes from a changed checkout"
    elif fault := fault_of(commit, head, plan.experiments):
        yield f"comes from {head[:8]}, {fault}"


def versions_of(plan: Plan, file: Path) -> list[tuple[str, Plan]]:
    """Return all committed versions of a plan, each with its first commit, the latest first."""
    versions: list[tuple[str, Plan]] = []
    for commit in git("log", "--format=%H", "--", str(file)).split():
        for version in plans_in(at(commit, file)):
            if version.id != plan.id:
                continue
            if versions and versions[-1][1].digest == version.digest:
                versions.pop()
            versions.append((commit, version))
    return versions


def unamended(
    plan: Plan,
    file: Path,
    runs: Iterable[Run],
) -> Iterator[str]:
    """Yield the digests of runs after which a plan has changed without an amendment."""
    carried = {run.meta.get("plans", {}).get(plan.id) for run in runs} - {None, plan.digest}
    if not carried:
        return
    versions = [version for _, version in versions_of(plan, file)]
    digests = [version.digest for version in versions]
    for digest in sorted(carried):
        if digest not in digests:
            yield f"runs carry the digest {digest}, which it never had"
            continue
        since = versions[: digests.index(digest) + 1]
        if any(len(new.amendments) <= len(old.amendments) for new, old in pairwise(since)):
            yield f"it has changed since its runs ({digest}) without an amendment"


def repeated(
    plan: Plan,
    file: Path,
    table: Path,
) -> Iterator[str]:
    """Yield the changes of a plan that keep seeds and level after its verdicts were published.

    Runs of the same seeds repeat the same numbers, so the changed plan would be chosen by them.
    """
    for (commit, new), (earlier, old) in pairwise(versions_of(plan, file)):
        shared = sorted(set(new.every_seed) & set(old.every_seed))
        if not shared or new.looks > old.looks:
            continue
        published = git("log", "--format=%H", f"{earlier}..{commit}^", "--", str(table)).split()
        if any(confirmed_claims(at(look, table), old) for look in published):
            yield (
                f"{commit[:8]} changed it after its verdicts were published, and keeps seeds "
                f"{shared[0]} to {shared[-1]}; take new seeds, or raise looks above {old.looks}"
            )


def confirmed_claims(table: str, plan: Plan) -> list[str]:
    """Return the claims of a plan that are confirmed in the text of a table of claims."""
    rows = csv.DictReader(io.StringIO(table))
    return [row["id"] for row in rows if row["status"] == "confirmed" and row["id"] in plan.claims]


def missing_runs(plan: Plan, runs: Iterable[Run]) -> Iterator[str]:
    """Yield the settings of a plan with runs for some planned seeds; one line if none has any.

    A setting without any run is not noticed; its comparisons have no runs in the tables.
    """
    seeds = defaultdict(set)
    for run in runs:
        if run.meta.get("plans", {}).get(plan.id) == plan.digest:
            seeds[Path(run.path).parent].add(run.meta["seed"])
    if not seeds:
        yield "no run carries its digest"
    for setting, present in sorted(seeds.items()):
        missing = sorted(set(plan.every_seed) - present)
        if missing:
            yield f"{setting} lacks seeds {', '.join(map(str, missing))}"


def faults_of_plan(
    plan: Plan,
    file: Path,
    runs: Sequence[Run],
    report: Path,
) -> Iterator[str]:
    """Yield the faults of a plan, of the runs that carry its digest, and of published verdicts."""
    commit = commit_of(plan, file)
    if commit is None:
        yield " is not committed as it is"
        return
    for change in changes_since(commit, file.stem, plan):
        yield f": {change}"
    for change in unamended(plan, file, runs):
        yield f": {change}"
    table = report / "tables" / f"{report.name}_claims.csv"
    for change in repeated(plan, file, table):
        yield f": {change}"
    for run in runs:
        if run.meta.get("plans", {}).get(plan.id) == plan.digest:
            for fault in faults_of_run(run, plan, commit):
                yield f": {run.path} {fault}"
    published = table.read_text() if table.is_file() else ""
    if claims := confirmed_claims(published, plan):
        for fault in missing_runs(plan, runs):
            yield f": {fault}, but it is published as having confirmed {', '.join(claims)}"


def faults(results: Path) -> Iterator[str]:
    """Yield the faults of all plans and of the runs that carry their digests."""
    for file in sorted((results / "published").glob(f"**/{FOLDER}/*.yaml")):
        yield f"{file} would be read in place of {results / FOLDER / file.name}; remove it"
    for file in sorted((results / FOLDER).glob("*.yaml")):
        plans = plans_of(results, file.stem)
        times = Counter(claim for plan in plans for claim in plan.claims)
        for claim in times:
            if times[claim] > 1:
                yield f"{file}: {claim} is in {times[claim]} plans; amend the first one"
        bundle = results / "published" / file.stem
        runs = list(Bundle(bundle).runs()) if is_bundle(bundle) else []
        for plan in plans:
            for fault in faults_of_plan(plan, file, runs, bundle):
                yield f"{file}: {plan.id}{fault}"


def main() -> None:
    """Print the faults; the exit status is 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    args = parser.parse_args()
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        print("plans cannot be checked in a shallow clone; run: git fetch --unshallow")
        return
    root = Path.cwd()
    broken = list(faults(args.results.resolve().relative_to(root)))
    for fault in broken:
        print(fault)
    if broken:
        sys.exit(1)
    print("all published runs of plans follow them")


if __name__ == "__main__":
    main()
