"""A benchmark of two settings of five clients and two rounds, with a method of one's own."""

from command_line import write_files

from fedbench.benchmarks.definition import read_benchmark
from fedbench.benchmarks.execution import BenchmarkContext
from fedbench.config.compose import Composer
from fedbench.runs.executors.local import LocalExecutor

EXPERIMENT = """
    # @package _global_
    # Tiny
    defaults:
      - _self_
      - override /data: synthetic_1_1
      - override /model: linear
    rounds: 2
    eval_every: 2
    eval_train_every: 2
    participation: {participation}
    data: {{clients: 5, seed: null}}
"""
BENCHMARK = """
    # Two tiny settings
    version: 3
    title: Tiny
    lead: For tests
    changes: {1: first, 3: now}
    settings:
      whole:
        experiment: own/whole
        held_out: [data.source.alpha=0.5]
        digests: ["868010392e", "b979317aa4"]
        about: All clients
      part:
        experiment: own/part
        held_out: [participation=2]
        digests: ["9f843c5d68", "c0502c8073"]
        about: Three of five clients
    baseline: fedavg
    methods: [fedavg, fedprox, afl]
    weights: uniform
    search: {rates: [0.01, 0.1], budget: 2, seeds: [1000], metric: val_accuracy_mean}
    seeds: 2
    metrics: [accuracy_mean, accuracy_worst10, bytes_up]
    tolerance: 0.02
"""
FILES = {
    "experiment/own/whole.yaml": EXPERIMENT.format(participation=1.0),
    "experiment/own/part.yaml": EXPERIMENT.format(participation=3),
    "benchmark/tiny.yaml": BENCHMARK.lstrip("\n"),
    "own_mine.py": """
        from fedbench import Algorithm, server_descent

        def mine(x, local=None):
            return Algorithm(**server_descent(lr=x))

        def diverging(x, local=None):
            def direction(up, cohort):
                return x * up["delta"].mean(0)

            return Algorithm(**server_descent(lr=x, direction=direction))
    """,
    "algo/mine.yaml": "_target_: own_mine.mine\nx: 1.0\n",
    "tune/mine.yaml": "algo.x: 0.5,1.0\n",
    "algo/diverging.yaml": "_target_: own_mine.diverging\nx: 1e30\n",
    "tune/diverging.yaml": "{}\n",
}


def write_tiny(folder, **changed):
    """Write the config tree of the benchmark, with files replaced by name."""
    write_files(folder, FILES | changed)


def context_of(conf, folder, name="tiny"):
    """The benchmark in a config tree, with results in a directory."""
    return BenchmarkContext(read_benchmark(name, conf), Composer(conf), LocalExecutor(1), folder)
