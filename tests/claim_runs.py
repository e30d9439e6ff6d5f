"""Runs that are made up for claims of the papers on record."""

from dataclasses import replace

import pandas as pd
from units import by_unit

from fedbench.analysis.claims.judge import comparisons_of, judge
from fedbench.analysis.matching import Evidence
from fedbench.papers.registry import papers

SEEDS = 10


class Run:
    """What a run on disk has."""

    def __init__(self, rounds=None, clients=None, cka=None):
        self._rounds, self._clients, self._cka = rounds, clients, cka
        self.series = {}

    def rounds(self):
        return pd.DataFrame(self._rounds)

    def curves(self, names):
        return self.rounds()

    def clients(self):
        return pd.DataFrame(self._clients)

    def last_clients(self):
        return self.clients().query("round == round.max()")

    def accuracy_of(self, client):
        end = self.last_clients().dropna(subset="accuracy")
        return dict(zip(end["client"], end["accuracy"], strict=True)).get(client)

    def last_round(self):
        return self._rounds[-1]

    def document(self, name):
        return self._cka and {"cka": self._cka}


def curve(values, field="accuracy_mean", every=10):
    return Run([{"round": every * i, field: v} for i, v in enumerate(values)])


def losses(*clients, rounds=(0, 5, 9)):
    """Training losses of clients, each with one for every round."""
    return [
        {"round": t, "client": k, "train_loss": v[i]}
        for k, v in enumerate(clients)
        for i, t in enumerate(rounds)
    ]


def final(**fields):
    return Run([{"round": 0, **fields}, {"round": 5, **fields}])


def every_seed(make, seeds=SEEDS):
    """Runs that differ a little from seed to seed."""
    return {s: make(1 + s / 100) for s in range(seeds)}


def finals(each=0.0, **fields):
    """Runs that end with these numbers, higher by ``each`` from seed to seed."""
    runs = {}
    for seed in range(SEEDS):
        runs[seed] = final(**{name: value + each * seed for name, value in fields.items()})
    return runs


class Given(Evidence):
    """Runs by (setup, method) or (setup, method, value of its hyperparameter)."""

    def __init__(self, paper, runs, **found):
        super().__init__(paper, [])
        self.given, self.made = runs, found

    def choices(self, row):
        names = ("participation", "alpha", "gamma", "lr", "epochs", "batch", "p")
        key = (
            row.setup,
            row.algo,
            next((row.hyperparameters[n] for n in names if n in row.hyperparameters), None),
        )
        more = self.made.get(row.setup, self.made.get(row.algo, {}))
        (empty,) = super().choices(row)
        runs = by_unit(self.given.get(key, self.given.get(key[:2], {})))
        return [replace(empty, runs=runs, **more), empty]


def claim(paper, name):
    return papers()[paper].claims[name]


def verdict(paper, name, runs, **found):
    """The verdict on a claim as if all rows were tuned alike."""
    return judge(
        claim(paper, name),
        Given(
            replace(papers()[paper], values={}),
            runs,
            **found,
        ),
    )


def word(paper, name, runs, **found):
    return verdict(paper, name, runs, **found).word


def compare(paper, name, runs, **found):
    c = claim(paper, name)
    return comparisons_of(
        c,
        c.check,
        Given(papers()[paper], runs, **found),
    )
