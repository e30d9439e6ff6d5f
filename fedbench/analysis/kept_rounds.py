"""What a bundle keeps of a run, so that every figure, claim and reading can be computed from the bundle."""

from __future__ import annotations

from fedbench.analysis.measured import best_round, best_rounds
from fedbench.analysis.run_rows import of_best_rounds
from fedbench.core.metrics import CATALOGUE
from fedbench.papers.registry import curve_fields, home_of
from fedbench.runs.bundle import Kept
from fedbench.runs.run import Run


def kept_of(run: Run) -> Kept:
    """Return what a bundle keeps of a finished run; of a run of no paper, that is everything but most rounds.

    Of a paper's run, these are the first and the best rounds of every metric, the curves that figures and claims read,
    and the clients of the best rounds that tables print.
    """
    home, experiment = home_of(run.meta["experiment"]), run.meta["experiment"]
    rounds = {int(run.rounds()["round"].iloc[0]), *(number for number, _ in best_rounds(run, CATALOGUE).values())}
    if home is None:
        return Kept(rounds=rounds)
    printed = (best_round(run, metric) for metric in of_best_rounds(experiment))
    of_clients = any(f.kind == "two_clients" and home.setup.id in f.setups for f in home.paper.figures.values())
    return Kept(
        curves=curve_fields(home.paper),
        rounds=rounds,
        client_rounds=None if of_clients else {found[0] for found in printed if found is not None},
    )
