"""Part a: the models that all methods and forms arrive at on the device, against the loop on the CPU in float64."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from suite.parts import Outcome, Part, Piece, Setting, release
from suite.subjects import PRECISIONS, composed, forms, last_model, pictures, prepared, texts
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
_GROUP = 4  # methods in a piece
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
        minutes: Minutes that all comparisons are expected to take on a GPU.
    """

    overrides: tuple[str, ...]
    data: Callable[[], FederatedDataset]
    rounds: int = ROUNDS
    minutes: float = 0.7


MLP = Subject(("model=mlp", "model.hidden=[16,8]"), partial(pictures, (20,), SIZES))
MODELS = {
    "linear": Subject(("model=linear",), partial(pictures, (20,), SIZES)),
    "cnn": Subject(
        ("model=cnn", "model.channels=[4,6]", "model.kernel=3", "model.hidden=16"),
        partial(pictures, (1, 12, 12), SIZES),
    ),
    "vgg11": Subject(("model=vgg11",), partial(pictures, (3, 32, 32), FEWER), minutes=1.5),
    "resnet18_gn": Subject(("model=resnet18_gn",), partial(pictures, (3, 8, 8), FEWER), minutes=1.5),
    "resnet50_gn": Subject(("model=resnet50_gn",), partial(pictures, (3, 32, 32), FEWER), 3, minutes=1.5),
    "lstm": Subject(
        ("model=lstm_char", "model.hidden=16", "model.embedding=4", "model.dropout=0.5"), partial(texts, 12, 7, SIZES)
    ),
    "lstm, every token": Subject(
        ("model=lstm_lm", "model.hidden=16", "model.embedding=4"), partial(texts, 12, 7, SIZES, every=True)
    ),
}


def trained(subject: Subject, method: str, device: torch.device, form: Form, precision: str, rounds: int) -> Tensor:
    """Return the model [P] after the last round, on the CPU."""
    return last_model(prepared(_config(subject, method, rounds), subject.data(), device, form, precision))


def _config(subject: Subject, method: str, rounds: int) -> RunConfig:
    options = ["local.lr=0.005" if method in NORMALISED else "local.lr=0.05", "local.batch_size=8", f"rounds={rounds}"]
    if method.startswith("fedcorr"):  # a round of its first stage has one client
        options += [f"algo.iterations={int(rounds > len(SIZES) + 1)}", "algo.rounds1=1"]
    return composed(f"algo={method}", *subject.overrides, *options)


def compare(name: str, subject: Subject, methods: Sequence[str], setting: Setting) -> Outcome:
    """Compare all forms and precisions of methods with the loop on the CPU, and return the distances."""
    rows, wrong = [], []
    rounds = 2 if setting.small else subject.rounds
    for method in methods:
        config = _config(subject, method, rounds)
        start = prepared(config, subject.data(), CPU, Form("loop"), "float64").w
        want = trained(subject, method, CPU, Form("loop"), "float64", rounds)
        for precision in _precisions(method, subject, setting):
            for form in _streams_once(forms(config, subject.data(), setting.device, precision)):
                try:
                    got = trained(subject, method, setting.device, form, precision, rounds)
                    off = float((got - want).norm() / (want - start).norm())
                except Exception as error:  # of one form: the others are still of interest
                    off, reason = float("nan"), f" ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})"
                else:
                    reason = ""
                rows.append({"method": method, "form": str(form), "precision": precision, "off": off})
                if not off <= (most := BOUNDS[precision]):
                    wrong.append(f"{name}, {method}, {form}, {precision}: {off:.1e}, at most {most:g}{reason}")
        release(setting.device)
    return {"rounds": rounds, "rows": rows, "wrong": wrong}


def _precisions(method: str, subject: Subject, setting: Setting) -> Sequence[str]:
    if method in DISCRETE or (setting.small and subject is MLP):
        return PRECISIONS[:1]
    return PRECISIONS[:2] if setting.small else PRECISIONS


def _streams_once(found: Sequence[Form]) -> list[Form]:
    """Return the forms without those that differ from another one in the number of streams alone."""
    kept = {(f.mode, f.graphs, f.channels_last, f.workers > 1): f for f in found}
    return list(kept.values())


def pieces(setting: Setting) -> list[Piece]:
    """Return the pieces: the methods on a small perceptron, a few at a time, then the other models with three."""
    methods = [m for m in choices("algo") if m not in _without_extra()]
    groups = [methods[k : k + _GROUP] for k in range(0, len(methods), _GROUP)]
    named = [("mlp: " + ", ".join(group), MLP, group) for group in groups]
    small = ("linear", "cnn", "lstm")
    named += [(name, s, FEW) for name, s in MODELS.items() if not setting.small or name in small]
    return [
        Piece(name, subject.minutes, partial(compare, name.split(":")[0], subject, group))
        for name, subject, group in named
    ]


def _without_extra() -> list[str]:
    """Return the methods that need an extra which is not installed."""
    return [] if importlib.util.find_spec("sklearn") else [m for m in choices("algo") if m.startswith("fedcorr")]


def table(found: Mapping[str, Outcome]) -> list[str]:
    """Return the largest distance of each model and precision as a table."""
    worst: dict[tuple[str, str], list[float]] = {}
    for name, outcome in found.items():
        for row in outcome.get("rows", []):
            off = row["off"]
            worst.setdefault((name.split(":")[0], row["precision"]), []).append(float("nan") if off is None else off)
    lines = ["| model | precision | comparisons | largest distance | bound |", "| --- | --- | ---: | ---: | ---: |"]
    for (model, precision), offs in worst.items():
        most = float("nan") if any(o != o for o in offs) else max(offs)
        lines.append(f"| {model} | {precision} | {len(offs)} | {most:.1e} | {BOUNDS[precision]:g} |")
    left_out = _without_extra()
    return [*lines, "", f"Not compared without the extra fedcorr: {', '.join(left_out)}."] if left_out else lines


PART = Part("a", "Correctness", pieces, table)
