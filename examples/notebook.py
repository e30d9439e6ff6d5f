"""fedbench from Python: two methods, three seeds, one table. The cells of a notebook would look the same."""

import fedbench

settings = {"data": "synthetic_leaf", "rounds": 20, "eval_every": 5, "local": {"lr": 0.01}}
for algo in ("fedavg", "adafedadam"):
    for seed in (0, 1, 2):
        # from disk the second time
        fedbench.run({"algo": algo, "seed": seed, **settings, "results_dir": "notebook"})

results = fedbench.load_results("notebook")
last = results.rounds[results.rounds["round"] == 20]
print(last.groupby("algo")[["accuracy_mean", "accuracy_worst30"]].agg(["mean", "std"]))
