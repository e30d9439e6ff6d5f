"""``fedbench reproduce``: its arguments, the plan that it shows, and the runs that it starts."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedbench.analysis.checks import refuse_bad_checks
from fedbench.commands.planned_runs import carry_out, locate, missing_data, write_labels
from fedbench.config.compose import compose_run
from fedbench.config.overrides import parse_overrides
from fedbench.core.errors import Parser, RequestError, install_hint
from fedbench.core.trees import config_value
from fedbench.papers.estimate import Estimator, calibrate, on_cpu
from fedbench.papers.ledger import Ledger, read_ledger
from fedbench.papers.plan import PROFILES, PlannedRun, chosen, plan
from fedbench.report.write import write_report

_COMMON = ("results_dir", "data_dir", "device", "engine.", "tracker", "data.download")


def _parser() -> Parser:
    p = Parser(
        prog="fedbench reproduce",
        description="Run what the chosen tables and figures need and what is not done yet, then write the report.",
    )
    p.add_argument("names", nargs="*", metavar="NAME", help="paper, paper/table or paper/figure; default: everything")
    p.add_argument(
        "--profile", choices=PROFILES, default="cpu", help="full: the papers' settings; cpu (default), smoke: reduced"
    )
    p.add_argument("--plan", action="store_true", help="show the plan and exit")
    p.add_argument("--seeds", type=int, help="number of seeds, instead of the profile's")
    p.add_argument("--jobs", type=int, default=1, help="number of runs at a time, in processes (extra: parallel)")
    p.add_argument("--launcher", help="a launcher plugin of Hydra, such as submitit_slurm, instead of --jobs")
    return p


def reproduce(args: Sequence[str]) -> int:
    """Carry out ``fedbench reproduce`` and return the exit status: 1 if a run with data is not done.

    Args:
        args: Names, options, and overrides for all runs: of directories, device, engine and tracker.

    Raises:
        RequestError: If the request is wrong; nothing is changed on disk.
    """
    if {"-h", "--help"} & set(args):
        print(_parser().format_help(), end="")
        return 0
    words = [a for a in args if "=" not in a or a.startswith("--")]
    given = parse_overrides([a for a in args if a not in words])
    for override in given:
        if not override.key.startswith(_COMMON):
            raise RequestError(
                f"{override.text}: reproduce takes overrides of {', '.join(_COMMON)} only, since the papers "
                f"determine the rest; `fedbench -m experiment=... {override.text}` runs a variant"
            )
    common = [override.text for override in given]
    asked = _parser().parse_intermixed_args(words)
    for name, value in (("--seeds", asked.seeds), ("--jobs", asked.jobs)):
        if value is not None and value < 1:
            raise RequestError(f"{name} must be an integer >= 1, got {value}")
    launcher = _launcher(asked, common)
    for paper in dict.fromkeys(p for p, _ in chosen(asked.names)):
        refuse_bad_checks(paper)
    jobs = locate(plan(asked.names, asked.profile, asked.seeds), common)
    results = compose_run(common).results_dir
    side_by_side = asked.jobs if asked.launcher is None else 1
    print(_shown(asked.names, jobs, asked.profile, results, common, side_by_side), flush=True)
    if asked.plan:
        return 0
    faults = missing_data([j for j in jobs if not j.done])
    write_labels(asked.names, results, common)
    entries = carry_out(jobs, faults, common, results, launcher)
    print(write_report(results))
    wrong = [e for e in entries if e.status != "done"]
    if wrong:
        print(f"\n{len(wrong)} of {len(entries)} runs are not done; the report says which and why")
    return 1 if any(e.status != "refused" or e.experiment not in faults for e in wrong) else 0


def _launcher(asked: argparse.Namespace, common: Sequence[str]) -> list[str]:
    if asked.launcher is not None:
        compose_run([*common, choice := f"hydra/launcher={asked.launcher}"])  # it is known
        return [choice]
    if asked.jobs == 1:
        return []
    try:
        import hydra_plugins.hydra_joblib_launcher  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError as error:
        raise RequestError(f"--jobs {asked.jobs} needs joblib; run: {install_hint('parallel')}") from error
    return ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={asked.jobs}"]


def _shown(
    names: Sequence[str],
    jobs: Sequence[PlannedRun],
    profile: str,
    results: Path,
    common: Sequence[str],
    side_by_side: int,
) -> str:
    """Return the plan as text: a line per table and figure, then the sum."""
    device = compose_run(common).device
    cores = max(1, (os.cpu_count() or 1) // side_by_side) if on_cpu(device) else 1
    estimator = Estimator(lambda: calibrate(device), cores)
    done = [j for j in jobs if j.done]
    seconds = {id(j): 0.0 if j.done else estimator.seconds(j, done) for j in jobs}
    lines = [f"profile {profile}, results in {results}", f"{'':28}{'runs':>6}{'done':>6}{'to do, about':>14}"]
    for paper, part in chosen(names):
        name = f"{paper.id}/{part}"
        mine = [j for j in jobs if name in j.parts]
        notes = [
            *_unfinished(mine, read_ledger(results)),
            *([f"reduced: {', '.join(cut)}"] if (cut := _cuts(mine)) else []),
        ]
        if not mine:
            notes = ["no runs: drawn from the data alone"]
        note = "".join(f"  {n}" for n in notes)
        left = sum(seconds[id(j)] for j in mine)
        lines.append(
            f"{name:<28}{len(mine):>6}{sum(j.done for j in mine):>6}{_duration(left) if left else '–':>14}{note}"
        )
    total = sum(seconds.values()) / side_by_side
    lines.append(f"{'in all, runs shared':<28}{len(jobs):>6}{len(done):>6}{_duration(total) if total else '–':>14}")
    if side_by_side == 1 and total > 600 and (os.cpu_count() or 1) > 1:
        lines.append("small models run faster side by side: --jobs 2 or more (extra: parallel)")
    return "\n".join(lines)


def _cuts(jobs: Sequence[PlannedRun]) -> list[str]:
    """Return what the runs of a table have less of than the paper: keys with their values, and seeds."""
    values: dict[str, dict[str, None]] = {}
    for job in jobs:
        for k, v in job.cut.items():
            values.setdefault(k, {})[config_value(v)] = None
    cuts = [f"{k}={' or '.join(v)}" for k, v in sorted(values.items())]
    seeds: dict[tuple[str, ...], set[int]] = {}
    for job in jobs:
        seeds.setdefault(job.setting, set()).add(job.seed)
    fewer = {
        (len(seeds[j.setting]), n) for j in jobs if len(seeds[j.setting]) < (n := j.paper.setups[j.row.setup].seeds)
    }
    return cuts + [f"seeds {have} of {wanted}" for have, wanted in sorted(fewer)]


def _unfinished(jobs: Sequence[PlannedRun], ledger: Ledger) -> list[str]:
    """Return how many runs earlier attempts could not finish, by what became of them."""
    counts: Counter[str] = Counter()
    for job in jobs:
        for e in ledger.of(job.experiment, job.algo, job.wanted):
            if e.seed == job.seed and e.status not in ("planned", "done") and (e.status == "diverged" or not job.done):
                counts["no data" if e.status == "refused" else e.status] += 1
    return [f"{word}: {n}" for word, n in sorted(counts.items())]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"
