"""examples/own_parts: a method, a model, a data set, a partition, metrics and scenarios, and what
is refused of one's own.
"""

import re
import runpy
from types import SimpleNamespace

import numpy as np
import pytest
import reference
import torch
import yaml
from command_line import meta_of, model_of, run_dir, write_files
from safetensors.torch import load_file
from tools import ROOT, federation, final, task_for
from toy_problems import clients_of

from fedbench.analysis.attacks import attack_success
from fedbench.runs.results import Results
from fedbench.runs.run import read_run
from fedbench.simulation.local_work import LocalWork

pytestmark = pytest.mark.whole

OWN = ROOT / "examples" / "own_parts"
FLAGS = ["--config-dir", str(OWN)]


def example(file):
    return runpy.run_path(str(OWN / f"{file}.py"))


# ---- a method with states: FedDyn


def test_dynreg_is_feddyn():
    data = federation(sizes=(3, 8, 5))
    work = LocalWork(lr=0.1, batch_size=None, epochs=(4, 4))
    w = torch.linspace(
        -1,
        1,
        task_for(data).size,
        dtype=torch.float64,
    )
    ours = final(
        example("dynreg")["dynreg"](alpha=0.3),
        data,
        rounds=5,
        work=work,
        w=w,
    )
    theirs = reference.run(
        "feddyn",
        clients_of(data),
        w.numpy(),
        5,
        0.1,
        [4] * 3,
        alpha=0.3,
    )
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-10)


# ---- model, data, partition and metrics


def test_all_of_them_in_one_run(fed, tmp_path):
    status, out, err = fed(
        *FLAGS, "data=wheel", "algo=dynreg", "+metrics=inequality", "rounds=3", "local.lr=0.1"
    )
    assert status == 0, err
    path = run_dir(tmp_path, out)
    model = load_file(path / "model.safetensors")
    assert model["outer.weight"].shape == (8, 16)
    assert set(meta_of(path)["code"]) == {file.name for file in OWN.glob("*.py")}
    last = read_run(path).last_round()
    assert 0 <= last["gini"] < 1
    assert last["cvar"] >= last["test_loss"]


def test_the_wheel_and_its_neighbours():
    """The classes are sectors, and client k has two neighbouring ones of the eight."""
    wheel = example("wheel")
    e = wheel["load"](seed=0)
    angle = np.arctan2(e.x[:, 1], e.x[:, 0]) % (2 * np.pi)
    assert np.array_equal(e.y, np.floor(angle / (np.pi / 4)).astype(int))
    y = e.y[~e.held_out]
    owned = wheel["neighbours"](y, 8, np.random.default_rng(0))
    assert [set(y[rows]) for rows in owned] == [{k, (k + 1) % 8} for k in range(8)]


def test_metrics_by_hand():
    found = example("inequality")
    # |a_i - a_j| is 0.5 in half of the four pairs: 0.25 / (2 * 0.75)
    assert found["gini"](np.array([0.5, 1.0])) == pytest.approx(1 / 6)
    # a tenth of 20 examples is 2: one of the client with loss 4, one of that with loss 3
    assert found["cvar"](np.array([1.0, 4.0, 3.0]), np.array([15.0, 1.0, 4.0])) == pytest.approx(
        3.5
    )


# ---- metrics


def test_metrics_change_nothing_else(fed, tmp_path):
    """The numbers are the same, in a directory of their own, and so is the configuration."""
    few = ["data.clients=8", "rounds=2"]

    def run(*args):
        return run_dir(tmp_path, fed(*args, *few)[1])

    with_metrics = run(*FLAGS, "+metrics=inequality")
    without = run()
    assert with_metrics.parent != without.parent
    assert model_of(with_metrics) == model_of(without)
    assert "\nmetrics:" not in (without / "config.yaml").read_text()
    columns = [set(read_run(path).rounds()) for path in (with_metrics, without)]
    assert columns[0] - columns[1] == {"gini", "cvar"}
    other = run(*FLAGS, "+metrics=inequality", "metrics.cvar.share=0.5")
    assert other.parent != with_metrics.parent
    # the sign may be left out
    assert run(*FLAGS, "metrics=inequality") == with_metrics


# ---- an attack, a defence and a compressor

FEW = ["data=synthetic_leaf", "data.clients=9", "algo.weights=uniform", "rounds=3"]
EXACT = [*FEW, "engine.precision=float64"]


@pytest.fixture
def trained(fed, tmp_path):
    """Runs the command, and returns the run and its model as one vector."""

    def call(*args):
        status, out, err = fed(*FLAGS, *args)
        assert status == 0, err
        path = run_dir(tmp_path, out)
        values = load_file(path / "model.safetensors").values()
        return read_run(path), torch.cat([v.flatten() for v in values])

    return call


def test_a_boost_of_zero_sends_the_honest_mean(trained):
    """As ALIE does with zeta=0; every further unit of the offset moves the mean by the share of
    the attackers.
    """
    keys = [*EXACT, "attack.clients=3"]
    _, ours = trained(*keys, "attack=boost", "attack.offset=0")
    _, theirs = trained(*keys, "attack=alie", "attack.zeta=0")
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)

    one = [*keys, "rounds=1"]
    _, honest = trained(*one, "attack=boost", "attack.offset=0")
    _, moved = trained(*one, "attack=boost", "attack.offset=6")
    torch.testing.assert_close(honest - moved, torch.full_like(honest, 2.0))


def test_a_run_under_a_boost_is_no_clean_partner(trained):
    keys = [*FEW, "attack.clients=3"]
    clean, _ = trained(*keys, "attack=clean")
    attacked, _ = trained(*keys, "attack=boost")
    accuracies = [run.last_round()["accuracy_mean"] for run in (attacked, clean)]
    assert attack_success([clean, attacked]) == {attacked.path: 1 - accuracies[0] / accuracies[1]}


def test_the_clipped_mean_is_norm_clipping(trained):
    _, ours = trained(*EXACT, "defence=clipped_mean")
    _, theirs = trained(*EXACT, "defence=norm_clip")
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_rule_with_weights_takes_those_of_the_method(fed, wrong, tmp_path):
    """The weighted mean is FedAvg's own sum, and its clients have different numbers of examples."""
    models = []
    for keys in (["defence=ruler", "defence._target_=wrong.Weighted"], []):
        status, out, err = fed(*wrong, "data.clients=8", "rounds=2", *keys)
        assert status == 0, err
        models.append(load_file(run_dir(tmp_path, out) / "model.safetensors"))
    torch.testing.assert_close(*models)


def test_preprocessing_comes_before_the_clipped_mean(trained):
    """Means of the same nearest vectors, of lengths that no factor of a million shortens."""
    keys = [*EXACT, "attack=boost", "attack.clients=3", "defence.before=nnm"]
    _, ours = trained(*keys, "defence=clipped_mean", "defence.factor=1e6")
    _, theirs = trained(*keys, "defence=median", "defence.rule=mean")
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_ternary_messages_are_unbiased():
    """Of 4000 messages, the mean is within five standard errors; the largest value is exact."""
    ternary = example("ternary")["Ternary"](population=SimpleNamespace(shapes=()))
    x = torch.tensor([[0.5, -2.0, 0.0, 1.0]]).expand(4000, -1)
    sent = ternary.decoded(x, 3, (torch.arange(4000)[:, None],))
    assert set(sent.unique().tolist()) == {-2.0, 0.0, 2.0}
    assert torch.equal(sent[:, 1:3], x[:, 1:3])
    error = (x * (2 - x.abs())).abs().sqrt() / 4000**0.5  # variance |x| (s - |x|)
    assert ((sent.mean(0) - x[0]).abs() <= 5 * error[0]).all()
    assert ternary.size(10, 4) == 4 + 3  # 20 bits


def test_ternary_messages_have_their_size_in_both_directions(trained):
    run, _ = trained(*FEW, "compression=ternary", "+compression.down._target_=ternary.Ternary")
    size = run.meta["parameters"]
    first, last = (run.rounds().iloc[t] for t in (1, 3))
    message = 4 + -(-size // 4)
    assert first["bytes_up"] == 9 * message
    assert last["bytes_up"] == 3 * 9 * message
    # the first broadcast of a reference is the whole vector
    assert last["bytes_down"] == 9 * (4 * size + 2 * message)


@pytest.mark.slow
def test_a_comparison_of_a_metric(fed, no_figures):
    keys = ["data.clients=8", "rounds=2", "+metrics=inequality"]
    assert fed(*FLAGS, "-m", *keys, "algo=fedavg,fedprox", "seed=0,1,2,3,4")[0] == 0
    status, out, err = fed("report", "results", "--compare", "algo", "--metric", "gini")
    assert status == 0, err
    assert "gini" in "\n".join(out)


def test_an_experiment_of_your_own(fed, tmp_path):
    """The command line comes before the presets, and these before the file."""
    keys = ["experiment=wheel_momentum", "rounds=1", "local.momentum=0.5"]
    status, _, err = fed(*FLAGS, "-m", *keys, "algo=fedavg,fedprox")
    assert status == 0, err
    runs = {run.meta["algo"]: run for run in Results(tmp_path / "results" / "wheel_momentum")}
    rates = {algo: run.config["local"]["lr"] for algo, run in runs.items()}
    assert rates == {"fedavg": 0.1, "fedprox": 0.05}
    assert runs["fedprox"].config["algo"]["mu"] == 1.0
    for run in runs.values():
        assert run.config["data"]["clients"] == 20
        assert run.meta["departures"] == {"local.momentum": [0.9, 0.5], "rounds": [30, 1]}


def test_presets_for_a_method_that_does_not_exist_are_refused(fed, tmp_path):
    """A misspelt method would otherwise run without its values."""
    folder = tmp_path / "own" / "experiment"
    folder.mkdir(parents=True)
    lines = "# @package _global_", "presets:", "  fedproxx: {mu: 1.0}"
    (folder / "misspelt.yaml").write_text("\n".join(lines))
    keys = ["--config-dir", str(tmp_path / "own"), "experiment=misspelt", "--cfg", "job"]
    status, out, err = fed(*keys)
    assert (status, out) == (2, [])
    assert "presets.fedproxx: there is no method fedproxx; did you mean fedprox?" in err


def test_the_documentation_shows_the_experiment():
    file = (OWN / "experiment" / "wheel_momentum.yaml").read_text()
    assert f"```yaml\n{file}```" in (ROOT / "docs" / "own_parts.md").read_text()


WRONG = """
import numpy as np
from torch import nn
from fedbench.data.examples import Examples

class Model(nn.Module):
    def __init__(self, input_shape, classes, wrong=""):
        super().__init__()
        self.wrong = wrong
        self.layer = nn.Linear(60, classes).requires_grad_(wrong != "frozen")
        if wrong == "buffers":
            self.norm = nn.InstanceNorm1d(classes, track_running_stats=True)

    def forward(self, x):
        if self.wrong == "shape":
            return self.layer(x).sum(-1)
        if self.wrong == "error":
            return self.layer(x[:, :59])
        if self.wrong == "infinite":
            return self.layer(x) / 0
        if self.wrong == "flow" and x.sum() > 0:
            return -self.layer(x)
        return self.layer(x)

def no_model(input_shape, classes):
    return None

def source(wrong=""):
    y = np.arange(20) % 2
    changed = {
        "labels": {"y": y + 1}, "lengths": {"x": np.ones((19, 3))},
        "words": {"x": np.array(["a"] * 20)}, "owner": {"owner": np.arange(20) // 4},
        "list": {"y": y.tolist()}, "held_out": {"held_out": y},
    }
    if wrong == "dictionary":
        return {}
    made = dict(x=np.ones((20, 3)), y=y, classes=2, owner=np.arange(20) // 5, names=tuple("abcd"))
    return Examples(**made | changed.get(wrong, {}))

def plain():
    return Examples(x=np.ones((20, 3)), y=np.arange(20) % 2, classes=2)

def partition(y, clients, rng, wrong=""):
    rows = np.array_split(np.arange(len(y)), clients)
    return {"none": None, "few": rows[1:], "twice": [*rows[1:], rows[1]],
            "float": [r / 1 for r in rows]}.get(wrong, rows)

def given(y, held_out):
    return [np.arange(len(y))]

def curve(accuracy):
    return accuracy

def undefined(accuracy):
    return float("nan")

def raising(loss):
    return loss["mean"]

def odd(accuracy, power):
    return 0.0

class Scaled(Model):
    def __init__(self, input_shape, classes):
        super().__init__(input_shape, classes)
        self.layer.scale = self.layer.weight.detach().norm()

import torch
from dataclasses import dataclass
from fedbench.scenarios.attack import Attack
from fedbench.scenarios.compression import Codec
from fedbench.scenarios.defence import Defence

def changed(v, wrong):
    results = {"rows": v[..., :1], "type": v.long(), "infinite": v / 0, "list": v.tolist()}
    return results.get(wrong, v)

@dataclass(frozen=True, kw_only=True)
class Forger(Attack):
    wrong: str = ""

    def forged(self, own, honest, attackers, draw, place):
        return honest if self.wrong == "honest" else changed(own, self.wrong)

@dataclass(frozen=True, kw_only=True)
class Ruler(Defence):
    wrong: str = ""
    bound = (3, 1)

    def combined(self, rows, p, f, centre):
        return rows if self.wrong == "rows" else changed(rows[0], self.wrong)

class Weighted(Ruler):
    weighted = True

    def combined(self, rows, p, f, centre):
        return p @ rows.double()

@dataclass(frozen=True, kw_only=True)
class Sizeless(Codec):
    wrong: str = ""

    def decoded(self, x, draw, at):
        return changed(x, self.wrong)

class Sized(Codec):
    def size(self, count, b):
        return 1

class Coder(Sizeless):
    def size(self, count, b):
        return 0.5 * count if self.wrong == "size" else count

class Blanking(Coder):
    def decoded(self, x, draw, at):
        x[:] = 0
        return x

class Dropping(Model):
    def forward(self, x):
        return nn.functional.dropout(self.layer(x), 0.5, self.training)

def odd_source(wrong=""):
    if wrong == "drawn":
        np.random.permutation(20)
    y = np.arange(20) % 2
    changed = {
        "column": {"y": y[:, None]}, "large": {"x": np.full((20, 3), 1e300)},
        "text": {"classes": "2"},
    }
    return Examples(**dict(x=np.ones((20, 3)), y=y, classes=2) | changed.get(wrong, {}))
"""
MODEL, SOURCE, RULE = "model._target_=wrong.Model", "data=src", "data=plain"
REFUSED = yaml.safe_load((ROOT / "tests" / "refused_parts.yaml").read_text())
LINEAR = "defaults:\n  - /model@_global_.model: linear\n"
FILES = {
    "wrong.py": WRONG,
    "data/src.yaml": f"{LINEAR}clients: null\nsource: {{_target_: wrong.source, wrong: ''}}\n",
    "data/plain.yaml": f"{LINEAR}  - partition: rule\nclients: 4\n"
    "source: {_target_: wrong.plain}\n",
    "data/partition/rule.yaml": "_target_: wrong.partition\nwrong: ''\n",
    "data/partition/given.yaml": "_target_: wrong.given\n",
    "attack/forger.yaml": "_target_: wrong.Forger\nclients: 3\nmessage: none\nwrong: ''\n",
    "defence/ruler.yaml": "_target_: wrong.Ruler\nf: 1\nrule: mean\nbefore: none\nwrong: ''\n",
    "compression/coder.yaml": "_target_: fedbench.scenarios.compression.compression\n"
    "up: {_target_: wrong.Coder, kind: none, wrong: ''}\ndown: {kind: none, feedback: none}\n",
    "compression/sized.yaml": "_target_: fedbench.scenarios.compression.compression\n"
    "up: {_target_: wrong.Sized, kind: none}\ndown: {kind: none, feedback: none}\n",
}


@pytest.fixture
def wrong(tmp_path):
    folder = tmp_path / "own"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return ["--config-dir", str(folder)]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["keys"])
def test_what_does_not_fit_is_named(fed, wrong, case):
    keys = case["keys"]
    few = [] if keys.startswith("data=") else ["data.clients=8"]
    status, out, err = fed(
        *wrong,
        *few,
        "rounds=1",
        *keys.split(),
    )
    assert status == 2, (out, err)
    # before that, unless a metric is wrong
    assert err.rpartition("evaluating the initial model\n")[2].count("\n") == 1
    assert re.search(case["message"], err), err


def test_a_method_that_ignores_the_solver_or_the_number_of_rounds_is_refused(fed, tmp_path):
    source = """
        from fedbench import Algorithm
        from fedbench.core.algorithm import Stage

        def deaf():
            return Algorithm()

        def long(local):
            return [Stage(Algorithm(), 40)]
    """
    files = {f"algo/{name}.yaml": f"_target_: ours.{name}\n" for name in ("deaf", "long")}
    write_files(tmp_path / "own", {"ours.py": source, **files})
    own = ["--config-dir", "own", "data.clients=8", "rounds=1"]
    assert fed(*own, "algo=deaf")[0] == 0
    status, _, err = fed(*own, "algo=deaf", "local.momentum=0.9")
    assert status == 2
    assert "local.momentum=0.9 has no effect, because deaf (own/ours.py, line 5) takes no" in err
    status, _, err = fed(*own, "algo=long")
    assert status == 2
    assert "must return stages of rounds=1 rounds in all, got 40" in err


def test_what_fits_runs(fed, wrong):
    assert fed(*wrong, "data.clients=8", "rounds=1", MODEL)[0] == 0
    assert fed(*wrong, "rounds=1", SOURCE)[0] == 0
    assert fed(*wrong, "rounds=1", RULE)[0] == 0
    keys = ["data.clients=8", "rounds=1", "algo.weights=uniform"]
    scenarios = ["attack=forger", "defence=ruler", "compression=coder"]
    assert fed(*wrong, *keys, *scenarios)[0] == 0


@pytest.mark.parametrize(
    ("page", "file", "start"),
    [
        ("own_method", "dynreg", "def dynreg"),
        ("own_parts", "boost", "    def forged"),
        ("own_parts", "clipped_mean", "    bound"),
        ("own_parts", "ternary", "    def decoded"),
    ],
)
def test_the_documentation_shows_the_code_that_is_tested(page, file, start):
    code = (OWN / f"{file}.py").read_text()
    assert code[code.index(start) :] in (ROOT / "docs" / f"{page}.md").read_text()


def test_a_config_file_that_would_never_be_read_is_refused(fed, tmp_path):
    """fedbench's own comes first; a copy of it hides nothing."""
    own = tmp_path / "own" / "algo" / "fedavg.yaml"
    own.parent.mkdir(parents=True)
    own.write_bytes((ROOT / "conf" / "algo" / "fedavg.yaml").read_bytes())
    flags = "--config-dir own algo=fedavg data.clients=3 rounds=0 --cfg job".split()
    assert fed(*flags)[0] == 0
    own.write_text("_target_: mine.mine\n")
    status, _, err = fed(*flags)
    assert status != 0
    assert "own/algo/fedavg.yaml is hidden by fedbench's own algo/fedavg.yaml" in err
