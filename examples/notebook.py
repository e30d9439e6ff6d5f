"""Two methods, three seeds, one table: fedbench from Python, as in the cells of a notebook."""

import fedbench

settings = {
    "data": "synthetic_leaf",
    "rounds": 20,
    "eval_every": 5,
    "local": {"lr": 0.01},
    "results_dir": "notebook",
}
for algo in ("fedavg", "adafedadam"):
    for seed in (0, 1, 2):
        # a run that is done already is read from disk
        fedbench.run({"algo": algo, "seed": seed, **settings})

results = fedbench.load_results("notebook")
last = results.rounds[results.rounds["round"] == 20]
by_method = last.groupby("algo")[["accuracy_mean", "accuracy_worst30"]]
print(by_method.agg(["mean", "std"]))
