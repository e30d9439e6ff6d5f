"""Runs on disk that were never trained: every number belongs to its place."""

import hashlib
import json
from pathlib import Path
from zlib import crc32

import pandas as pd
import yaml

from fedbench.core.checksums import file_checksum, with_checksum

ROUNDS = (0, 5, 10)
TAILS = [f"accuracy_{side}{p}" for side in ("worst", "best") for p in (5, 10, 20, 30)]
FIELDS = (
    "train_loss test_loss accuracy_mean accuracy_std accuracy_variance accuracy_min accuracy_max "
    "angle_degrees kl_uniform accuracy_mean_weighted accuracy_std_weighted "
    "accuracy_worst30_weighted improved_clients update_norm "
    "clients bytes_up bytes_down seconds_train seconds_eval"
).split() + TAILS


def number(*of):
    """A number between 0 and 1 that belongs to something."""
    return crc32(repr(of).encode()) / 2**32


def measured(experiment, algo, keys, seed, field, t=ROUNDS[-1]):
    """What a made-up run has in a field of a round."""
    return (
        None
        if field == "update_norm" and t == 0
        else number(experiment, algo, sorted(keys.items()), seed, field, t)
    )


def measured_curve(*of):
    """The field of a made-up run in all rounds."""
    return [measured(*of, t) for t in ROUNDS]


def nested(flat):
    tree = {}
    for key, value in flat.items():
        *sections, last = key.split(".")
        at = tree
        for s in sections:
            at = at.setdefault(s, {})
        at[last] = value
    return tree


def facts_of(**facts):
    """The facts of a run that is done, unless others are given."""
    return {
        "status": "done",
        "data": "synthetic_leaf",
        "model": "linear",
        "started": "2024-01-01",
        "sources": [],
        "overrides": [],
        "departures": {},
        **facts,
    }


def write_run(path, meta, config, rounds, clients=None):
    """Write the files of a run; a configuration has dotted keys."""
    path.mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "config.yaml").write_text(yaml.safe_dump(nested(config)))
    (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rounds))
    if clients is not None:
        pd.DataFrame(clients).to_parquet(path / "clients.parquet", index=False)
    if meta["status"] in ("done", "diverged"):
        seal(path)


def write_seeds(root, algo, config, rounds, clients=None, **meta):
    """Write runs of one configuration, from their rounds by seed."""
    text = json.dumps([algo, config], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    made = {"hash": digest, "algo": algo, "experiment": None, "data": "toy"}
    facts = facts_of(**made | meta)
    folder = root / (facts["experiment"] or facts["data"]) / algo / facts["hash"]
    for seed, rows in rounds.items():
        seeded = {"seed": seed}
        write_run(folder / f"seed_{seed}", facts | seeded, config | seeded, rows, clients)


def seal(path):
    """Write DONE for the files of a run as they are now."""
    (path / "DONE").unlink(missing_ok=True)
    files = {
        p.name: file_checksum(p)
        for p in path.iterdir()
        if p.is_file() and not p.name.startswith(".")
    }
    (path / "DONE").write_text(with_checksum({"sealed": files}))


def edit(path, change):
    """Change a file of a run, by a function of its text, and seal the run again if it is done."""
    path.write_text(change(path.read_text()))
    if (path.parent / "DONE").exists():
        seal(path.parent)


def change_facts(root, **facts):
    """Give all runs below a directory other facts."""
    for file in root.rglob("meta.json"):
        changed = json.dumps(json.loads(file.read_text()) | facts)
        edit(file, lambda _, changed=changed: changed)


def change_last_round(path, **fields):
    """Give the last round of a run other values."""
    *lines, last = (path / "rounds.jsonl").read_text().splitlines()
    changed = json.dumps(json.loads(last) | fields)
    edit(path / "rounds.jsonl", lambda _: "\n".join([*lines, changed]) + "\n")


def fake(
    root,
    experiment,
    algo,
    keys=None,
    seeds=(0, 1, 2),
    cut=None,
    status="done",
    preset=None,
    moments=None,
    error=None,
):
    """Runs on disk.

    Args:
        keys: config keys that a row sets.
        cut: those that differ from the experiment besides: key -> [there, here].
        preset: those that the experiment has.
        moments: content of moments.json.
        error: what ended them.
    """
    keys, cut = keys or {}, cut or {}
    digest = hashlib.sha256(repr((sorted(keys.items()), sorted(cut.items()))).encode()).hexdigest()[
        :10
    ]
    paths = []
    for seed in seeds:
        path = Path(root) / (experiment or "synthetic_leaf") / algo / digest / f"seed_{seed}"
        facts = facts_of(
            status=status,
            seed=seed,
            hash=digest,
            algo=algo,
            experiment=experiment,
            departures={**{key: [None, value] for key, value in keys.items()}, **cut},
            rounds=ROUNDS[-1],
            versions={"fedbench": "0.1.0", "torch": "2"},
            device_name="cpu",
            git_commit=None,
        )
        if error is not None:
            facts["error"] = error
        config = {
            "rounds": 1000,
            "seed": seed,
            **(preset or {}),
            **keys,
            **{k: here for k, (_, here) in cut.items()},
        }
        rows = []
        for t in ROUNDS:
            values = {f: measured(experiment, algo, keys, seed, f, t) for f in FIELDS}
            rows.append({"round": t, **values})
        clients = [(t, k) for t in ROUNDS for k in range(6)]
        table = dict(zip(("round", "client"), zip(*clients, strict=True), strict=True))
        place = (experiment, algo, sorted(keys.items()), seed)
        for name in ("accuracy", "test_loss", "train_loss"):
            table[name] = [number(*place, name, t, k) for t, k in clients]
        write_run(path, facts, config, rows, table)
        if moments is not None:
            document = {"round": ROUNDS[-1], "clients": [0, 1], "cka": moments}
            (path / "moments.json").write_text(json.dumps(document))
            seal(path)
        paths.append(path)
    return paths


def fake_run(root, experiment, algo, keys=None, **options):
    """Leave one run, of seed 0; return its directory."""
    (path,) = fake(root, experiment, algo, keys, seeds=(0,), **options)
    return path


def fake_row(root, paper, row, **more):
    """Runs of a row of a paper, at its setting if nothing is said."""
    setup = paper.setups[row.setup]
    more.setdefault("seeds", range(setup.seeds))
    return fake(
        root,
        setup.experiment,
        paper.methods[row.algo].algo,
        paper.overrides(row),
        **more,
    )
