"""Many small runs, in one or several processes: python ranks_job.py RESULTS ROUNDS ..."""

import sys
from pathlib import Path

import fedbench
from fedbench.config.overrides import options
from fedbench.simulation import cohort

SMALL = (
    "data=synthetic_leaf data.clients=12 local.batch_size=16 local.epochs=1 "
    "keep_state=true eval_every=2"
)
FORMS = {
    "compiled": "model=linear",
    "sampled": (
        "model=mlp model.hidden=[8] participation=5 engine.mode=stacked engine.cohort_size=2"
    ),
    "summed": "model=mlp model.hidden=[8] engine.mode=loop",  # uploads are added up part by part
}


# rounds more, for a round of each client in its first stage
OWN = {"fedcorr": 12, "fedcorr_adafed": 12}
# where some clients take part
PARTIAL = {"afl": "algo.partial=true", "fafed": "algo.variant=stateless"}
# of models with a body, and with running statistics
HEADS = {"fedper", "lgfedavg", "fedrep", "fedbabu", "moon"}
STATISTICS = dict.fromkeys(["fedbn", "silobn", "fixbn"], "model.norm=batch")


def runs(form: str, rounds: int) -> list[str]:
    """The overrides of every method in one form."""
    part = "participation" in FORMS[form]
    names = set(options("algo")) - {"_none"}
    if part:
        names -= {"stem", "fedamp"}  # which are for all clients
    if "model=linear" in FORMS[form]:
        names -= HEADS | STATISTICS.keys()
    own = STATISTICS | (PARTIAL if part else {})
    return [
        f"algo={n} {SMALL} {FORMS[form]} {own.get(n, '')} rounds={rounds + OWN.get(n, 0)}"
        for n in sorted(names)
    ]


if __name__ == "__main__":
    results, rounds, form, *wanted = sys.argv[1:]
    if form == "summed":
        cohort._HELD_BYTES = 0
    for overrides in runs(form, int(rounds)):
        if not wanted or overrides.split()[0].removeprefix("algo=") in wanted:
            fedbench.run(f"{overrides} results_dir={Path(results) / form}")
