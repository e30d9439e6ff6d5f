"""Best values of a key as Markdown text."""

from __future__ import annotations

from fedbench.analysis.best_values import BestValues
from fedbench.analysis.tables import Cell
from fedbench.core.metrics import MetricInfo
from fedbench.report.render import markdown


def best_text(best: BestValues) -> str:
    """Return a table with a row per setting: the chosen value, and both metrics over the seeds of its runs."""
    rows, notes = [], []
    for s in best.settings:
        edge = "yes" if s.edge else ""
        judged, shown = _text(best.by, s.judged), _text(best.metric, s.shown)
        rows.append([s.title, s.value, str(len(s.tried)), str(s.shown.n), judged, shown, edge])
        notes += [f"- {s.title}: {best.key}={v} has runs that diverged or are not done\n" for v in s.left_out]
    heads = ["setting", best.key, "tried", "seeds", best.by.name, best.metric.name, "edge"]
    legend = (
        f"{best.key} with the best mean of {best.by.name} at the last round; mean ± sample STD over seeds; edge: the "
        "first or last of the values tried, beyond which there may be better ones\n"
    )
    return "\n".join([legend, markdown(heads, rows), "".join(notes)]).rstrip()


def _text(metric: MetricInfo, cell: Cell) -> str:
    spread = "" if cell.std is None else f" ± {metric.text(cell.std)}"
    return metric.text(cell.mean) + spread
