"""Definitions of benchmarks: the files, what is refused, and settings that have changed."""

import pytest
import yaml
from tiny_benchmark import BENCHMARK, EXPERIMENT, context_of, write_tiny
from tools import ALGORITHMS

from fedbench.benchmarks.definition import GROUP, read_benchmark
from fedbench.benchmarks.execution import methods_of
from fedbench.config.overrides import choice_files
from fedbench.core.errors import RequestError


@pytest.mark.parametrize("name", choice_files(GROUP, None))
def test_the_settings_of_a_benchmark_are_those_of_its_version(name, tmp_path):
    context = context_of(None, tmp_path, name)
    context.check_settings()
    assert methods_of(context.benchmark) == ALGORITHMS
    assert context.benchmark.label == f"{name}@{context.benchmark.version}"


def test_an_unknown_benchmark_is_refused_with_the_nearest(tmp_path):
    write_tiny(tmp_path)
    assert read_benchmark("tiny", tmp_path).version == 3
    with pytest.raises(RequestError, match=r"tyny is unknown; did you mean tiny\?.* fair, .*tiny"):
        read_benchmark("tyny", tmp_path)


def test_a_name_stands_for_one_benchmark(tmp_path):
    write_tiny(tmp_path, **{"benchmark/fair.yaml": BENCHMARK})
    with pytest.raises(RequestError, match="fedbench's own benchmark, with another content"):
        read_benchmark("fair", tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 0, "version: must be > 0, got 0"),
        ("version", 2, "changes lacks version 2"),
        ("settings", {}, "settings: .* at least 1 item"),
        ("metrics", ["accuracy_mean"], "metrics: .* at least 2 items"),
        ("metrics", ["accuracy_mean", "luck"], "metrics: luck is not measured"),
        ("metrics", ["accuracy_mean", "error_mean"], "metrics: error_mean is not measured"),
        ("tolerance", -1, "tolerance: must be >= 0, got -1"),
        ("tolerance", float("nan"), "tolerance: .* finite"),
        ("weights", "equal", "weights: must be one of uniform, size; got 'equal'"),
        ("seed", 5, "unknown key 'seed'"),
        ("search", {"rates": [1], "budget": 2, "seeds": [1]}, "search: lacks metric"),
        (
            "search",
            {"rates": [1], "budget": 2, "seeds": [1], "metric": "val_loss"},
            "seed 1 is one of the table",
        ),
        (
            "search",
            {"rates": [1], "budget": 2, "seeds": [9], "metric": "accuracy_mean"},
            "search: metric accuracy_mean is none of val_loss, .*mean val_accuracy_mean",
        ),
        (
            "search",
            {"rates": [0], "budget": 2, "seeds": [9], "metric": "val_loss"},
            "search: rates 1: must be > 0, got 0",
        ),
    ],
)
def test_an_invalid_definition_is_refused(tmp_path, key, value, message):
    tree = yaml.safe_load(BENCHMARK) | {key: value}
    write_tiny(tmp_path, **{"benchmark/tiny.yaml": yaml.safe_dump(tree)})
    with pytest.raises(RequestError, match=rf"tiny\.yaml.*{message}"):
        read_benchmark("tiny", tmp_path)


def test_the_baseline_is_one_of_the_methods(tmp_path):
    text = BENCHMARK.replace("[fedavg, fedprox, afl]", "[fedprox, afl]")
    write_tiny(tmp_path, **{"benchmark/tiny.yaml": text.lstrip("\n")})
    with pytest.raises(RequestError, match="baseline must be one of fedprox, afl; got 'fedavg'"):
        context_of(tmp_path, tmp_path / "results").check_settings()


@pytest.mark.parametrize("text", ["- a", "a: ["])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    write_tiny(tmp_path, **{"benchmark/tiny.yaml": text})
    with pytest.raises(
        RequestError, match=r"tiny\.yaml (must be a mapping|cannot be read as YAML)"
    ):
        read_benchmark("tiny", tmp_path)


@pytest.mark.parametrize("held_out", [False, True])
def test_a_changed_setting_is_refused_with_both_digests(tmp_path, held_out):
    changed = {"experiment/own/part.yaml": EXPERIMENT.format(participation=4)}
    if held_out:
        text = BENCHMARK.replace("held_out: [participation=2]", "held_out: [participation=1]")
        changed = {"benchmark/tiny.yaml": text}
    write_tiny(tmp_path, **changed)
    context = context_of(tmp_path, tmp_path / "results")
    present = list(context.planned("part", "fedavg").digests)
    written = ["9f843c5d68", "c0502c8073"]
    assert [a == b for a, b in zip(present, written, strict=True)] == [held_out, not held_out]
    with pytest.raises(RequestError) as error:
        context.check_settings()
    message = str(error.value)
    assert "the setting part is not that of tiny@3" in message
    assert str(present) in message
    assert str(written) in message
    assert "set version: 4" in message
