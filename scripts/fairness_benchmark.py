"""Run the fairness benchmark: tune and compare all methods on four settings (conf/experiment/fairness).

``python scripts/fairness_benchmark.py DIR`` carries out ``fedbench compare`` for every setting, with results in
DIR/<setting>; type it again to resume. Methods that refuse a setting are left out of it, and the reasons are written to
DIR/<setting>/refused.json. When all settings are done, the page is written to DIR/page (scripts/benchmark_page.py). The
methods, the settings, the budget and the seeds can be reduced for a trial; several processes can share the settings.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from fedbench.config.compose import Composer
from fedbench.config.overrides import options
from fedbench.core.errors import RequestError
from fedbench.core.files import replace_file
from fedbench.runs.build import build

SETTINGS = ("synthetic", "mnist_2class", "femnist", "cifar10")
_NOTES = Path(__file__).parents[1] / "results" / "published" / "fairness" / "notes.yaml"
_VARIANTS = ("fedcorr_adafed",)  # choices of algo that combine two of the methods
_RATES = "local.lr=tag(log,interval(0.002,1))"  # narrower than conf/tune/shared.yaml, since the budget is small


def main() -> int:
    """Carry out the comparisons that the command line asks for, and return the highest of their exit statuses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="directory of the results")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="settings, separated by commas")
    parser.add_argument("--methods", default=",".join(methods()), help="methods, separated by commas")
    parser.add_argument("--budget", type=int, default=6, help="trials per method and setting")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the table")
    parser.add_argument("--jobs", type=int, help="runs at a time; the default is that of fedbench compare")
    parser.add_argument("overrides", nargs="*", help="overrides of every run, such as rounds=5")
    args = parser.parse_intermixed_args()
    given = [m for m in args.methods.split(",") if m]
    status = max(_compare(args, setting, given) for setting in args.settings.split(","))
    return max(status, _page(args.directory))


def methods() -> list[str]:
    """Return all methods, in alphabetical order."""
    return [name for name in options("algo") if name not in _VARIANTS]


def refusals(setting: str, given: list[str], overrides: list[str]) -> dict[str, str]:
    """Return the methods that cannot run in a setting, with the reason that a run would print."""
    composer, found = Composer(None), {}
    for method in given:
        try:
            build(composer.config([f"experiment=fairness/{setting}", f"algo={method}", *overrides]))
        except RequestError as error:
            found[method] = str(error)
    return found


def _compare(args: argparse.Namespace, setting: str, given: list[str]) -> int:
    folder = args.directory / setting
    refused = refusals(setting, given, args.overrides)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "refused.json", json.dumps(refused, indent=1) + "\n")
    for method, why in refused.items():
        print(f"{setting}: without {method}: {why}", flush=True)
    able = ",".join(m for m in given if m not in refused)
    compare = ["compare", f"methods={able}", f"experiment=fairness/{setting}", f"budget={args.budget}"]
    compare += [f"seeds={args.seeds}", _RATES, f"results_dir={folder}", *args.overrides]
    compare += [f"--jobs={args.jobs}"] if args.jobs else []
    print("fedbench", shlex.join(compare), flush=True)
    return subprocess.run([sys.executable, "-m", "fedbench", *compare], env=os.environ, check=False).returncode


def _page(folder: Path) -> int:
    missing = [s for s in SETTINGS if not list((folder / s / "fairness" / s / "report").glob("index.html"))]
    if missing:
        print(f"no page yet: {', '.join(missing)} not done in {folder}")
        return 0
    page = [str(Path(__file__).with_name("benchmark_page.py")), str(folder / "page"), "--notes", str(_NOTES)]
    settings = [str(folder / s) for s in SETTINGS]
    return subprocess.run([sys.executable, *page, "--from", *settings], env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
