"""A sweep on a Ray cluster of two nodes on this machine, one of which is lost.

usage: python ray_nodes.py RESULTS ROUNDS replace|freeze
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
from ray.cluster_utils import Cluster as Nodes

from fedbench.config.compose import Composer
from fedbench.runs.executors import ray as ray_executor
from fedbench.runs.executors.base import RunBatch
from fedbench.runs.executors.ray import RayExecutor


def main():
    """Carry out the sweep and print the state of every run, and what has happened."""
    results = Path(sys.argv[1])
    rounds, event = sys.argv[2:]
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0})
    first = nodes.add_node(num_cpus=1)
    nodes.add_node(num_cpus=1)
    happened = []

    def happen():
        while not list(results.rglob("DONE")):  # a run is over: the next ones are under way
            time.sleep(0.1)
        raylet = psutil.Process(first.all_processes["raylet"][0].process.pid)
        if event == "freeze":
            for process in (raylet, *raylet.children(recursive=True)):
                process.suspend()
        else:
            nodes.remove_node(first, allow_graceful=False)
            ray = Path(sys.executable).with_name("ray")
            start = [ray, "start", f"--address={nodes.address}", "--num-cpus=1"]
            subprocess.run(start, check=True, capture_output=True)
        happened.append(event)

    thread = threading.Thread(target=happen)
    thread.start()
    ray_executor.SILENT_SECONDS = 15.0
    base = ["data.clients=30", "algo=scaffold", f"rounds={rounds}", "eval_every=400"]
    composer = Composer()
    configs = [
        composer.config([*base, f"results_dir={results}", f"seed={seed}"]) for seed in range(6)
    ]
    batch = RunBatch(configs, quiet=True)
    RayExecutor(nodes.address).execute(batch)
    thread.join()
    print("states", *(result.status for result in batch.results))
    print("happened", *happened)
    for process in psutil.process_iter(["cmdline"]):  # what `ray start` has started lives on
        words = process.info["cmdline"] or []
        if any(nodes.address in word for word in words[1:]):
            process.kill()


if __name__ == "__main__":
    main()
