"""``fedbench plot DIR``: a figure of curves of runs."""

from __future__ import annotations

from collections.abc import Sequence

from fedbench.analysis.run_curves import POSITIONS, run_curves
from fedbench.core.errors import Parser, RequestError
from fedbench.core.paths import user_path
from fedbench.core.trees import config_value
from fedbench.core.writing import NotWritten
from fedbench.report.canvas import KINDS
from fedbench.report.run_plot import BANDS, draw_curves
from fedbench.report.write import name_left_out
from fedbench.runs.bundle import stored
from fedbench.runs.store import Run

_META = ("algo", "data", "model", "experiment")


def _parser() -> Parser:
    p = Parser(
        prog="fedbench plot",
        description="Draw a metric of the runs in a directory: mean over seeds, a line per value of a key, a panel per "
        "setting.",
    )
    p.add_argument(
        "folder", nargs="?", default="results", metavar="DIR", help="directory of the runs (default: results)"
    )
    p.add_argument("--x", default="round", help=f"{', '.join(POSITIONS)} (default: round)")
    p.add_argument("--y", default="accuracy_mean", help="key of rounds.jsonl (default: accuracy_mean)")
    p.add_argument("--by", default="algo", help="a line per value of this key (default: algo)")
    p.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only runs with this value; may be repeated"
    )
    p.add_argument(
        "--interval",
        default="t",
        choices=BANDS,
        help="band around the mean: 95 %% t interval, range, none (default: t)",
    )
    p.add_argument("--log", action="store_true", help="logarithmic axis of the metric")
    p.add_argument("--out", metavar="FILE", help="file ending in .pdf, .png or .svg (default: DIR/plots/..., .png)")
    return p


def plot(args: Sequence[str]) -> str:
    """Draw a figure and return which file was written.

    Args:
        args: The words after ``plot``.

    Raises:
        RequestError: If an argument is wrong, or there is nothing to draw.
    """
    if {"-h", "--help"} & set(args):
        return _parser().format_help().rstrip()
    asked = _parser().parse_args(list(args))
    folder = user_path("DIR", asked.folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a directory; it must be a directory that contains runs, such as results")
    name = f"{asked.y}_over_{asked.x}_by_{asked.by}.png".replace("/", "_").replace(":", "_")
    file = user_path("--out", asked.out) if asked.out else folder / "plots" / name
    if file.suffix.removeprefix(".") not in KINDS:
        raise RequestError(f"--out must end in {', '.join('.' + k for k in KINDS)}; got {file}")
    store = stored(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir of earlier runs, such as results")
    for text in asked.where:
        runs = _chosen(runs, text)
    curves = run_curves(runs, asked.x, asked.y, asked.by)
    try:
        written = draw_curves(file, curves, asked.x, asked.y, asked.interval, asked.log)
    except NotWritten as error:
        raise RequestError(str(error)) from error
    return "\n".join(f"written: {path}" for path in written)


def _chosen(runs: Sequence[Run], text: str) -> list[Run]:
    """Return the runs with a value of a key.

    Raises:
        RequestError: If there are none; the message has the values that there are.
    """
    key, equals, wanted = text.partition("=")
    if not equals:
        raise RequestError(f"--where takes KEY=VALUE, such as algo=fedavg; got {text}")
    values = [(run, _value(run, key)) for run in runs]
    known = sorted({v for _, v in values if v is not None})
    if not known:
        raise RequestError(f"--where {text}: none of {len(runs)} runs has the key {key}; see their config.yaml")
    if wanted not in known:
        raise RequestError(f"--where {text}: no run has this value; {key} is one of {', '.join(known)}")
    return [run for run, v in values if v == wanted]


def _value(run: Run, key: str) -> str | None:
    """Return the value of a key as typed; None if the run does not have it."""
    if key in _META:
        return str(run.meta[key])
    return config_value(run.flat[key]) if key in run.flat else None
