"""Which of fedbench's own functions a configuration may call."""

import re
from pathlib import Path

import numpy as np
import pytest
from tools import ALGORITHMS, CONF

import fedbench
from fedbench.config.targets import Component, call, function_of
from fedbench.core.errors import RequestError

HOSTILE = [
    ("algo", "fedbench.cli.main"),
    ("algo", "fedbench.__main__.main"),
    ("algo", "fedbench.run"),
    ("algo", "fedbench.core.writing.replaced"),
    ("algo", "fedbench.runs.sweep_notes.forget"),
    ("algo", "fedbench.data.files.archives.unpack"),
    ("algo.server", "fedbench.runs.sweep_notes.forget"),
    ("model", "fedbench.runs.store.read_run"),
    ("model", "fedbench.models.dense.nn"),
    ("data.source", "fedbench.data.files.download.ensure"),
    ("data.source", "fedbench.data.sources.npz.np.load"),
    ("data.source", "fedbench.data.sources._folders.fetched"),
    ("data.source", "fedbench.data.sources.cifar10.read_pickles"),
    ("data.source", "fedbench.data.partitions.index_file.indices"),
    ("data.partition", "fedbench.data.partitions.index_file.write"),
    ("data.partition", "fedbench.data.partition_label.os"),
    ("tracker", "fedbench.commands.workers.work_through"),
    ("tracker", "fedbench.algorithms.fedavg.fedavg"),
]


@pytest.mark.parametrize(("what", "target"), HOSTILE)
def test_a_function_that_is_no_component_is_refused_before_it_is_imported(what, target, monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"{name} is imported"))
    monkeypatch.setenv("FEDBENCH_TRUST", "fedbench,os,shutil")
    with pytest.raises(RequestError, match=rf"^{what}\._target_={re.escape(target)} is not a .* and is not executed"):
        call(Component(target, {"path": "/"}), what)


def test_a_metric_is_no_function_of_fedbench():
    with pytest.raises(RequestError, match=r"metrics\.x takes a function of your own, as FILE\.FUNCTION"):
        function_of("fedbench.core.writing.replaced", "metrics.x")


def test_a_file_that_removes_and_writes_does_neither(tmp_path):
    """The whole way, from a config file that came from elsewhere."""
    victim, own = tmp_path / "kept", tmp_path / "own"
    victim.mkdir()
    np.savez(tmp_path / "x.npz", x=np.zeros((20, 3), dtype=np.float32), y=np.arange(20) % 2)
    (own / "algo").mkdir(parents=True)
    (own / "data" / "partition").mkdir(parents=True)
    (own / "algo" / "evil.yaml").write_text(f"_target_: fedbench.runs.sweep_notes.forget\nfolder: {victim}\n")
    (own / "data" / "partition" / "evil.yaml").write_text(
        f"_target_: fedbench.data.partitions.index_file.write\npath: {victim}/written.json\ndata: x\n"
    )
    for override in ("algo=evil", "data/partition=evil"):
        given = [override, "data=npz", f"data.file={tmp_path}/x.npz", "data.clients=2"]
        given += ["data/partition=iid"] * (override == "algo=evil")
        with pytest.raises(RequestError, match="is not executed"):
            fedbench.run([*given, f"results_dir={tmp_path}/results"], config_dir=own)
    assert list(victim.iterdir()) == []
    assert victim.is_dir()


def test_what_the_config_tree_names_is_allowed():
    for name in ALGORITHMS:
        assert function_of(f"fedbench.algorithms.{name}.{name}", "algo.server").__name__ == name
    for group, what in (("model", "model"), ("data/partition", "data.partition")):
        for file in (CONF / group).glob("*.yaml"):
            for target in re.findall(r"^_target_: (fedbench\S+)", Path(file).read_text(), re.MULTILINE):
                assert callable(function_of(target, what))
    assert callable(function_of("fedbench.data.partition.iid", "data.partition"))  # its name at the first release
