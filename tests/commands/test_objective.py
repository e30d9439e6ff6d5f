"""What sweepers of Hydra get from a run, and how their ways to type an axis are taken."""

import json
import math
import sys
import textwrap

import pytest
from command_line import FAST

from fedbench.commands.objective import objective_of, objective_value
from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.runs.run import read_run

SWEEPER = """
    import json
    from pathlib import Path

    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.plugins import Plugins
    from hydra.plugins.sweeper import Sweeper

    class Two(Sweeper):
        '''Tries both ends of every interval and all choices, and writes down what the runs return.'''
        def __init__(self, **options):
            pass

        def setup(self, *, hydra_context, task_function, config):
            self.launcher = Plugins.instance().instantiate_launcher(
                hydra_context=hydra_context, task_function=task_function, config=config)
            self.folder = config.hydra.sweep.dir

        def sweep(self, arguments):
            jobs = [[]]
            for text in arguments:
                o = OverridesParser.create().parse_override(text)
                if o.is_interval_sweep():
                    values = [o.value().start, o.value().end]
                elif o.is_sweep_override():
                    values = list(o.sweep_string_iterator())
                else:
                    values = [o.get_value_element_as_str()]
                jobs = [job + [f"{o.get_key_element()}={v}"] for job in jobs for v in values]
            found = self.launcher.launch(jobs, initial_job_idx=0)
            Path("returned.json").write_text(json.dumps([[j, float(r.return_value)] for j, r in zip(jobs, found)]))
"""


@pytest.fixture
def sweeper(tmp_path, monkeypatch):
    """A sweeper of Hydra's that draws from intervals, installed as plugins are."""
    from hydra.core.plugins import Plugins

    place = tmp_path / "site" / "hydra_plugins" / "two"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("")
    (place / "sweeper.py").write_text(textwrap.dedent(SWEEPER))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    sys.modules.pop("hydra_plugins", None)
    Plugins.instance()._initialize()
    yield "hydra.sweeper._target_=hydra_plugins.two.sweeper.Two"
    for name in [m for m in sys.modules if m.startswith("hydra_plugins")]:
        del sys.modules[name]
    monkeypatch.undo()
    Plugins.instance()._initialize()


def test_a_sweeper_gets_the_accuracy_of_every_run(fed, tmp_path, sweeper):
    axes = ["local.lr=interval(0.01,0.5)", "algo.mu=choice(0.1,1.0)"]
    status, _, err = fed("-m", sweeper, "algo=fedprox", *axes, *FAST, "data.validation=0.25")
    assert status == 0, err
    returned = json.loads((tmp_path / "returned.json").read_text())
    assert len(returned) == 4
    runs = [read_run(p.parent) for p in tmp_path.glob("results/*/fedprox/*/seed_0/DONE")]
    by_values = {(r.config["local"]["lr"], r.config["algo"]["mu"]): r for r in runs}
    for job, value in returned:
        values = dict(text.split("=") for text in job)
        last = by_values[float(values["local.lr"]), float(values["algo.mu"])].last_round()
        assert value == last["val_accuracy_mean"]
        assert value != last["accuracy_mean"]


def test_a_failed_run_is_no_number_to_a_sweeper(fed, tmp_path, sweeper, monkeypatch):
    from fedbench.runs import training

    def broken(*_):
        raise OSError("no disk")

    monkeypatch.setattr(training, "evaluate", broken)
    fed("-m", sweeper, "local.lr=interval(0.01,0.5)", *FAST)
    assert all(math.isnan(value) for _, value in json.loads((tmp_path / "returned.json").read_text()))


def test_an_interval_without_a_sweeper_that_draws_is_refused_with_what_to_type(fed):
    status, _, err = fed("-m", "local.lr=interval(0.01,0.5)", *FAST)
    assert status == 2
    assert "local.lr=interval(0.01,0.5) has no list of values" in err
    assert "fedbench tune" in err


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ([], "accuracy_mean"),
        (["data.validation=0.2"], "val_accuracy_mean"),
        (["data.validation=0.2", "objective=accuracy_worst30"], "accuracy_worst30"),
        (["data.validation=0.2", "objective=val_loss"], "val_loss"),
        (["objective=test_loss"], "test_loss"),
    ],
)
def test_which_metric_is_the_objective(given, name):
    assert objective_of(compose_run(given)) == name


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("objective=accuracy_meen", "did you mean accuracy_mean"),
        ("objective=val_accuracy_mean", "data.validation"),
        ("objective=clients", "is not a metric"),
    ],
)
def test_an_objective_that_no_run_has_is_refused_before_anything_runs(fed, tmp_path, given, text):
    status, _, err = fed("-m", given, "seed=0,1", *FAST)
    assert status == 2
    assert text in err
    assert not (tmp_path / "results").exists()


def test_the_objective_is_no_part_of_the_identity():
    assert compose_run(["objective=test_loss"]).digest == compose_run([]).digest


def test_a_run_that_diverged_is_the_worst(fed, tmp_path):
    fed("data.clients=8", "rounds=50", "local.lr=1e30", "model=mlp")
    (done,) = tmp_path.glob("results/*/*/*/*/DONE")
    run = read_run(done.parent)
    assert run.meta["status"] == "diverged"
    assert objective_value(run, "accuracy_mean") == 0.0
    assert objective_value(run, "test_loss") == math.inf


def test_a_request_error_names_the_key():
    with pytest.raises(RequestError, match="objective must be auto or a column"):
        compose_run(["objective=1"])
