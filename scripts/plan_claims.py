#!/usr/bin/env python
"""Print a plan for claims of a paper, to be completed and committed before its first run.

    python scripts/plan_claims.py PAPER ID --experiments NAME,... --seeds FIRST LAST
    --claims ID,... [--variants ID,...]

The plan contains the checks as they are in the paper's file. Write it to results/plans/PAPER.yaml
after completing it; docs/reproduction.md explains its keys.
"""

import argparse
import sys
from datetime import date

import yaml

from fedbench.analysis.claims.judge import code_digest
from fedbench.config.compose import Composer
from fedbench.papers.registry import papers, written_checks


def main() -> None:
    """Print a plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paper", choices=papers(), help="id of the paper")
    parser.add_argument("id", help="name of the plan, unique in the paper's plans")
    parser.add_argument("--experiments", required=True, help="experiments, separated by commas")
    parser.add_argument("--seeds", nargs=2, type=int, required=True, metavar=("FIRST", "LAST"))
    parser.add_argument("--claims", required=True, help="ids of claims, separated by commas")
    parser.add_argument("--variants", default="", help="ids of variants, separated by commas")
    args = parser.parse_args()

    paper = papers()[args.paper]
    experiments = args.experiments.split(",")
    ids = args.claims.split(",")
    variants = [name for name in args.variants.split(",") if name]
    checks = written_checks(paper.id)
    for kind, given, known in (
        ("experiments", experiments, {setup.experiment for setup in paper.setups.values()}),
        ("claims", ids, checks),
        ("variants", variants, paper.readings.variants),
    ):
        if unknown := set(given) - set(known):
            sys.exit(f"unknown {kind}: {', '.join(unknown)}; known are {', '.join(known)}")
    for experiment in experiments:
        tree = Composer(None).config([f"experiment={experiment}"]).tree
        if tree["data"]["seed"] is not None:
            print(
                f"{experiment} draws one split for all seeds; set data.seed: null", file=sys.stderr
            )
    claims = {}
    for id in ids:
        claims[id] = {"check": checks[id]}
        if code := code_digest(paper.claims[id], paper.id):
            claims[id]["code"] = code
    plan = {
        "id": args.id,
        "date": date.today().isoformat(),
        "experiments": experiments,
        "seeds": args.seeds,
        "claims": claims,
        "adopted": {"": "the adopted readings of open points, each with the reason"},
        "search": "the searched values, with range, budget and seeds",
        "variants": variants,
    }
    print(yaml.safe_dump([plan], sort_keys=False, width=100), end="")


if __name__ == "__main__":
    main()
