"""Part a: the models that all methods and forms arrive at on the device, against the loop on the CPU in float64."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from suite.parts import Outcome, Part, Piece, Setting, of_each_form
from suite.subjects import PRECISIONS, composed, forms, models_after, pictures, prepared, texts
from torch import Tensor

from fedbench.config.schema import RunConfig
from fedbench.config.schema import options as choices
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.forms import Form

CPU = torch.device("cpu")
# Largest distance between two models relative to the way that training has come, |w - w'| / |w' - w_0|, after the last
# round. The lower precisions round the factors of products to 24, 11 and 8 bits. Imitated on a CPU, these roundings
# give up to 6e-3, 0.16 and 0.25: methods that divide by small second moments magnify them.
BOUNDS = {"float64": 1e-9, "float32": 0.05, "tf32": 0.3, "bf16": 0.5}
ROUNDS = 20
EARLY = 3  # rounds that are repeated, in which each form has to arrive at the same bits
# Methods whose course depends on comparisons (which labels are changed, which examples are classified correctly): a
# rounding may flip one, and the models part. They are compared in float64 alone.
DISCRETE = ("fedcorr", "fedcorr_adafed", "fedfa")
NORMALISED = ("fafed", "fedcada", "local_adam", "naive_adaptive")  # their local steps are as long as the rate says
FEW = ("fedavg", "scaffold", "adafedadam")
SIZES = (9, 23, 14, 31)  # training examples of the clients; with batches of 8 these take 2, 3, 2 and 4 steps
FEWER = (4, 9)  # of large models: the loop on the CPU, in float64, takes most of the time


@dataclass(frozen=True)
class Subject:
    """A model with data that it can read.

    Attributes:
        overrides: Overrides that make the model.
        data: Returns the data.
        rounds: Number of rounds.
        minutes: Minutes that a piece is expected to take on a GPU.
    """

    overrides: tuple[str, ...]
    data: Callable[[], FederatedDataset]
    rounds: int = ROUNDS
    minutes: float = 0.15


MLP = Subject(("model=mlp", "model.hidden=[16,8]"), partial(pictures, (20,), SIZES))
MODELS = {
    "linear": Subject(("model=linear",), partial(pictures, (20,), SIZES)),
    "cnn": Subject(
        ("model=cnn", "model.channels=[4,6]", "model.kernel=3", "model.hidden=16"),
        partial(pictures, (1, 12, 12), SIZES),
    ),
    "vgg11": Subject(("model=vgg11",), partial(pictures, (3, 32, 32), FEWER), minutes=0.6),
    "resnet18_gn": Subject(("model=resnet18_gn",), partial(pictures, (3, 8, 8), FEWER), minutes=0.6),
    "resnet50_gn": Subject(("model=resnet50_gn",), partial(pictures, (3, 32, 32), FEWER), 3, minutes=0.6),
    "lstm": Subject(
        ("model=lstm_char", "model.hidden=16", "model.embedding=4", "model.dropout=0.5"), partial(texts, 12, 7, SIZES)
    ),
    "lstm, every token": Subject(
        ("model=lstm_lm", "model.hidden=16", "model.embedding=4"), partial(texts, 12, 7, SIZES, every=True)
    ),
}


def trained(
    subject: Subject, method: str, device: torch.device, form: Form, precision: str, rounds: int, after: Sequence[int]
) -> list[Tensor]:
    """Return the models [P] after some of the rounds, on the CPU in float64."""
    return models_after(prepared(_config(subject, method, rounds), subject.data(), device, form, precision), after)


@lru_cache(maxsize=1)  # a large model is trained once for all its precisions, which follow each other
def _reference(subject: Subject, method: str, rounds: int) -> tuple[Tensor, Tensor]:
    """Return the initial model and the last one of the loop on the CPU."""
    start, last = trained(subject, method, CPU, Form("loop"), "float64", rounds, [0, rounds])
    return start, last


def _config(subject: Subject, method: str, rounds: int) -> RunConfig:
    options = ["local.lr=0.005" if method in NORMALISED else "local.lr=0.05", "local.batch_size=8", f"rounds={rounds}"]
    if method.startswith("fedcorr"):  # a round of its first stage has one client
        options += [f"algo.iterations={int(rounds > len(SIZES) + 1)}", "algo.rounds1=1"]
    return composed(f"algo={method}", *subject.overrides, *options)


def compare(name: str, subject: Subject, method: str, precision: str, setting: Setting) -> Outcome:
    """Compare all forms of a method in one precision with the loop on the CPU, and each with itself."""
    rounds = 2 if setting.small else subject.rounds
    start, want = _reference(subject, method, rounds)
    early, most = min(EARLY, rounds), BOUNDS[precision]

    def row(form: Form) -> dict[str, object]:
        given = (subject, method, setting.device, form, precision, rounds)
        first, got = trained(*given, [early, rounds]) if early < rounds else 2 * trained(*given, [rounds])
        (again,) = trained(*given, [early])
        off = float((got - want).norm() / (want - start).norm())
        return {"method": method, "precision": precision, "off": off, "same": torch.equal(first, again)}

    config = _config(subject, method, rounds)
    possible = _streams_once(forms(config, subject.data(), setting.device, precision))
    found = of_each_form(possible, setting, row)
    about = f"{name}, {method}, {precision}"
    wrong = [f"{about}, {line}" for line in found["wrong"]]
    for r in found["rows"]:
        if not r["off"] <= most:
            wrong.append(f"{about}, {r['form']}: {r['off']:.1e}, at most {most:g}")
        if not r["same"]:
            wrong.append(f"{about}, {r['form']}: other bits after {early} rounds when they are repeated")
    return {**found, "rounds": rounds, "wrong": wrong}


def _streams_once(found: Sequence[Form]) -> list[Form]:
    """Return the forms without those that differ from another one in the number of streams alone."""
    kept = {(f.mode, f.graphs, f.channels_last, f.workers > 1): f for f in found}
    return list(kept.values())


def pieces(setting: Setting) -> list[Piece]:
    """Return the pieces: one for each model, method and precision.

    FedAvg in every model and float32 first; then all methods on a small perceptron, in float64 and float32; then the
    rest: FedAvg in the other precisions, two more methods on every model in float64, and in all on the perceptron.
    """
    models = {k: s for k, s in MODELS.items() if not setting.small or k in ("linear", "cnn", "lstm")}
    methods = [m for m in choices("algo") if m not in _without_extra()]
    exact = PRECISIONS[:1] if setting.small else PRECISIONS[:2]
    named = [(name, s, FEW[0], p) for name, s in models.items() for p in PRECISIONS[:2]]
    named += [("mlp", MLP, m, p) for m in methods for p in exact if p == "float64" or m not in DISCRETE]
    if not setting.small:
        named += [(name, s, FEW[0], p) for name, s in models.items() for p in PRECISIONS[2:]]
        named += [("mlp", MLP, m, p) for m in FEW for p in PRECISIONS[2:]]
    named += [(name, s, m, "float64") for name, s in models.items() for m in FEW[1:]]
    return [
        Piece(f"{name}, {method}, {precision}", s.minutes, partial(compare, name, s, method, precision))
        for name, s, method, precision in named
    ]


def _without_extra() -> list[str]:
    """Return the methods that need an extra which is not installed."""
    return [] if importlib.util.find_spec("sklearn") else [m for m in choices("algo") if m.startswith("fedcorr")]


def table(found: Mapping[str, Outcome]) -> list[str]:
    """Return the largest distance of each model and precision as a table."""
    worst: dict[tuple[str, str], list[float]] = {}
    for name, outcome in found.items():
        for row in outcome.get("rows", []):
            off = float("nan") if row["off"] is None else row["off"]
            model = name.removesuffix(f", {row['method']}, {row['precision']}")
            worst.setdefault((model, row["precision"]), []).append(off)
    lines = ["| model | precision | comparisons | largest distance | bound |", "| --- | --- | ---: | ---: | ---: |"]
    for (model, precision), offs in worst.items():
        most = float("nan") if any(o != o for o in offs) else max(offs)
        lines.append(f"| {model} | {precision} | {len(offs)} | {most:.1e} | {BOUNDS[precision]:g} |")
    left_out = _without_extra()
    return [*lines, "", f"Not compared without the extra fedcorr: {', '.join(left_out)}."] if left_out else lines


PART = Part("a", "Correctness", pieces, table)
