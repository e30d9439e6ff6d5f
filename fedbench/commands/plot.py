"""``fedbench plot DIR``: a figure of curves of runs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fedbench.analysis.settings import GROUPS
from fedbench.commands.report import runs_below
from fedbench.core.config_values import config_value
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.reports import plots
from fedbench.reports.canvas import KINDS, draw
from fedbench.reports.figures import curve_panels
from fedbench.runs.run import Run

_MOST_LINES, _MOST_PANELS = 24, 12


def execute(args: Namespace) -> int:
    """Draw a figure and print which file was written; the status is 1 if runs are left out.

    Raises:
        NotWritten: If the figure cannot be written.
        RequestError: If an argument is wrong, or there is nothing to draw.
    """
    name = f"{args.y}_over_{args.x}_by_{args.by}.png".replace("/", "_").replace(":", "_")
    file = user_path("--out", args.out) if args.out else args.folder / "plots" / name
    if file.suffix.removeprefix(".") not in KINDS:
        raise RequestError(f"--out must end in {', '.join('.' + k for k in KINDS)}; got {file}")
    runs, left_out = runs_below(args.folder)
    for text in args.where:
        runs = _chosen(runs, text)
    panels = curve_panels(runs, [args.y], args.x, args.by)
    _refuse_illegible(panels)
    if args.log and not any((series.y > 0).any() for panel in panels for series in panel.series):
        raise RequestError(f"--log needs values above 0, and {args.y} has none")
    (args.page,) = draw(file, plots.curves, "", panels, log_y=args.log)
    print(f"written: {args.page}")
    return 1 if left_out else 0


def _refuse_illegible(panels: Sequence[plots.Panel]) -> None:
    """Refuse more panels or lines than can be told apart."""
    most = max(len(panel.series) for panel in panels)
    if len(panels) > _MOST_PANELS or most > _MOST_LINES:
        raise RequestError(
            f"{len(panels)} settings with up to {most} lines each are too many to tell apart (at most {_MOST_PANELS} "
            f"and {_MOST_LINES}); choose some with --where KEY=VALUE, such as "
            "--where algo=fedavg"
        )


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
    if key in ("experiment", *GROUPS):
        return str(run.meta.get(key) or "none")
    return config_value(run.flat[key]) if key in run.flat else None
