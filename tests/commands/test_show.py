"""``fedbench show``: one run in a terminal."""

import json

import numpy as np
from command_line import fed  # noqa: F401 (a fixture)
from fake_runs import fake

from fedbench.commands.show import sparkline


def test_a_curve_is_a_line_of_blocks():
    assert sparkline(np.array([0.0, 1.0, 2.0, 7.0])) == "▁▂▃█"
    assert sparkline(np.ones(3)) == "▁▁▁"
    assert sparkline(np.arange(640.0))[:2] + sparkline(np.arange(640.0))[-1] == "▁▁█"
    assert len(sparkline(np.arange(640.0))) == 32


def test_a_run_is_shown_with_its_curves_and_files(fed, tmp_path):  # noqa: F811
    (path,) = fake(tmp_path, None, "fedavg", seeds=(0,))
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    rows[-1]["train_loss"] = float("inf")
    (path / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, lines, _ = fed("show", str(path))
    out = "\n".join(lines)
    assert status == 0
    (accuracy,) = [line for line in lines if line.startswith("  mean accuracy  ")]
    assert accuracy.endswith(f" {sparkline(np.array([row['accuracy_mean'] for row in rows]))}")
    assert "training loss" not in out  # which is no number in the last round
