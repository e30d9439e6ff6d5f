"""The test vectors: the engine agrees with them, and the files are what their references write.

The batches of the files are those that the engine draws with the seed 0: compiled code, which takes
no others, has them too. Cohorts and numbers of steps are given to the engine.
"""

from __future__ import annotations

import inspect
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from types import SimpleNamespace
from typing import Literal, get_args, get_origin

import check_vectors
import jsonschema
import numpy as np
import pytest
import torch
import yaml
from tools import ALGORITHMS, ROOT, engine_of, factory, make, simulated, stages_of
from vectors.catalogue import METHODS
from vectors.files import data_file, method_file, text

from fedbench.core.algorithm import Stage
from fedbench.core.optim import sgd
from fedbench.core.randomness import Purpose
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.models.dense import MLP, Linear
from fedbench.models.parts import places_of
from fedbench.runs.build_parts import parts_of, with_parts
from fedbench.simulation import cohort as cohort_module
from fedbench.simulation.compiled.dense import expressible
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Observer, Participants
from fedbench.simulation.objectives import with_objective
from fedbench.simulation.task import Task

FOLDER = ROOT / "results" / "vectors"
CLOSE = 1e-12
SOLVER = ("lr", "momentum", "batch_size")
# measurements that the engine takes for the server, and that clients of the vectors send
MEASURED = {"loss": "loss_after", "accuracy": "accuracy_after"}


@cache
def data_sets():
    return check_vectors.read_data(FOLDER)


@cache
def method_of(name):
    return check_vectors.read_method(FOLDER, name)


def every_case():
    """Parameters (method, number of the case, mode); the first case of a method always runs."""
    for name in METHODS:
        for place, case in enumerate(json.loads((FOLDER / f"{name}.json").read_text())["cases"]):
            for mode in ("loop", "stacked", "compiled"):
                marks = [] if place == 0 else [pytest.mark.slow]
                title = f"{name}-{check_vectors.title(case)}-{mode}"
                yield pytest.param(name, place, mode, marks=marks, id=title)


# ---- the engine on a case


@dataclass(frozen=True, kw_only=True)
class GivenWork(LocalWork):
    """Local work with the numbers of steps of a case.

    Attributes:
        steps_of: The local steps, by round and client.
    """

    steps_of: tuple[dict[int, int], ...] = ()

    def tau(self, ids, n, seed, round, epochs=None):
        if epochs is not None:
            return super().tau(ids, n, seed, round, epochs)
        return np.array([self.steps_of[round][k] for k in ids.tolist()], dtype=np.int64)


class Seen:
    """What the engine did, by round; compiled code does not show its steps."""

    def __init__(self, rounds, mode):
        self.mode = mode
        self.uploads = [{} for _ in range(rounds)]
        self.probes = [{} for _ in range(rounds)]
        self.messages = [{} for _ in range(rounds)]
        self.servers = [{} for _ in range(rounds)]
        self.steps = {}


def federated(data):
    """The data set of a case, for the engine."""
    xs, ys = zip(*data["clients"], strict=True)
    ends = np.cumsum([len(y) for y in ys])
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    whole = FederatedDataset(
        x=torch.from_numpy(np.concatenate(xs)),
        y=torch.from_numpy(np.concatenate(ys)),
        train=Rows.of(rows),
        test=Rows.of([np.arange(0)] * len(xs)),
        names=tuple(f"c{k}" for k in range(len(xs))),
        classes=data["layers"][-1],
    )
    return whole.to(torch.device("cpu"), torch.float64)


@dataclass(frozen=True)
class Setting:
    """A case, for the engine.

    Attributes:
        case: The case.
        data: Its data set.
        task: The model.
        stage: The method, as in a run.
        w: The shared part of the initial model.
    """

    case: dict
    data: dict
    task: Task
    stage: Stage
    w: torch.Tensor

    @property
    def rounds(self):
        return len(self.case["schedule"])


def network_of(data):
    features, *hidden, classes = data["layers"]
    with torch.device("meta"):
        if not hidden:
            return Linear([features], classes)
        # the model with BatchNorm has six tensors
        return MLP([features], classes, hidden, "batch" if len(data["tensors"]) == 6 else "none")


def options_of(name, case, data, task):
    """The options of a method, with those that a run sets itself."""
    options = {k: v for k, v in case["hyperparameters"].items() if k not in SOLVER}
    counts = [len(y) for _, y in data["clients"]]
    if options.get("weights" if name == "feddyn" else "init") == "size":
        options["examples"] = counts
    if options.get("distance") == "tensor":
        options["tensors"] = task.layout.sizes
    if name == "fedrod":
        options["layout"] = places_of(task.model, task.layout.names)
    return options


def case_of(name, place=0):
    return method_of(name)["cases"][place]


def setting_of(name, case):
    data = data_sets()[case["data"]]
    net = network_of(data)
    plain = Task(net, torch.device("cpu"), torch.float64)
    options = options_of(name, case, data, plain)
    (stage,) = stages_of(
        make(name, sgd(momentum=case["hyperparameters"]["momentum"]), **options),
        len(case["schedule"]),
        len(data["clients"]),
    )
    nothing_given = SimpleNamespace(personal=None, frozen=None, statistics=None, fix_after=None)
    config = SimpleNamespace(parts=nothing_given, names=SimpleNamespace(algo=name))
    parts = parts_of(config, stage.algorithm, net)
    task = Task(
        net,
        torch.device("cpu"),
        torch.float64,
        frozen=parts.frozen,
        personal=parts.personal,
    )
    w = task.begin(plain.shared.named(torch.from_numpy(data["w0"])))
    if task.size > task.shared.size:
        stage = with_parts(config, [stage], task, federated(data), w, parts.moving)
    return Setting(case, data, task, stage, w[: task.shared.size])


@contextmanager
def watched(seen):
    """Record what clients receive and send, and their models after every step."""
    train = Participants.train
    local_phase = cohort_module.Part.local_phase

    def watch_train(self, message, info):
        t = self.before.round
        seen.servers[t] = self.server
        uploads, after = train(self, message, info)
        seen.probes[t] = after.probe
        seen.messages[t] = message
        return uploads, after

    def watch_phase(self, algo, msg, clients, info, round):
        if self.kernel is None:
            algo = replace(algo, step=recorded(algo.step, seen, self.cohort.purpose, round))
        return local_phase(self, algo, msg, clients, info, round)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Participants, "train", watch_train)
        patch.setattr(cohort_module.Part, "local_phase", watch_phase)
        yield


def recorded(step, seen, purpose, round):
    """A local step that keeps the local variables after it."""

    def watch(oracle, msg, local, batch, info):
        after = step(oracle, msg, local, batch, info)
        for row, k in enumerate(info.id.flatten().tolist()):
            kept = {name: v[row].clone() for name, v in after.items()}
            seen.steps.setdefault((purpose, round, k), []).append(kept)
        return after

    return watch


def engine_run(setting, mode):
    """Run the engine on a case; return its snapshots, and what was seen."""
    case = setting.case
    seen = Seen(setting.rounds, mode)
    given = case["hyperparameters"]
    schedule = check_vectors.numbered(case["schedule"])
    work = GivenWork(
        lr=given["lr"],
        batch_size=given["batch_size"],
        steps_of=tuple({k: len(b) for k, b in plan["batches"].items()} for plan in schedule),
    )
    engine = engine_of(setting.task, mode)
    observer = Observer(
        lambda t: True, lambda e: seen.uploads.__setitem__(e.round - 1, dict(e.uploads))
    )
    try:
        with watched(seen):
            run = simulated(
                [with_objective(setting.stage, setting.task.size)],
                setting.task,
                federated(setting.data),
                work,
                engine,
                setting.w,
                0,
                lambda t, n, seed: np.array(schedule[t]["cohort"]),
                observers=[observer],
            )
            snapshots = [
                s._replace(clients={k: v.clone() for k, v in s.clients.items()}) for s in run
            ]
    finally:
        engine.close()
    return snapshots, seen


# ---- comparing


def arranged(name, values, data):
    """Vectors of the model's order [..., P] in the engine's order, which has shared parts first."""
    head = (data["layers"][-2] + 1) * data["layers"][-1]
    if name == "lgfedavg":
        return np.concatenate([values[..., -head:], values[..., :-head]], -1)
    if name == "fedbabu":
        return values[..., :-head]
    return values


def gap(expected, actual):
    """The largest difference, relative to the largest expected number if that is above 1."""
    actual = torch.as_tensor(actual).double().numpy()
    assert expected.size == actual.size
    scale = max(1.0, np.abs(expected).max(initial=0))
    return np.abs(expected.ravel() - actual.ravel()).max(initial=0) / scale


def bits(mask, size):
    """A packed mask, entry by entry."""
    return torch.from_numpy(np.unpackbits(mask.numpy(), bitorder="little")[:size])


def upload_of(seen, t, row, name):
    """What client number ``row`` of the cohort sent, or what was measured for the server."""
    uploads = seen.uploads[t]
    if name == "mask":
        return bits(uploads["mask"][row], uploads["delta"].shape[1])
    if name in uploads:
        return uploads[name][row]
    names = [name, MEASURED.get(name)]
    (measured,) = [key for key in names if key in seen.probes[t]]
    return seen.probes[t][measured][row]


def differences(name, setting, snapshots, seen):
    """Yield (what, gap) for every value of a case."""
    case = setting.case
    for key, expected in case["start"]["server"].items():
        yield f"start, server.{key}", gap(expected, seen.servers[0][key])
    for k, states in case["start"]["states"].items():
        for key, expected in states.items():
            yield (
                f"start, client {k}, state.{key}",
                gap(expected, snapshots[0].clients[key][int(k)]),
            )
    for t, expected in enumerate(case["rounds"]):
        last = snapshots[t + 1]
        for row, (k, client) in enumerate(expected["clients"].items()):
            yield from client_differences(name, setting, (t, row, int(k)), client, last, seen)
        for key, value in expected["server"].items():
            yield f"round {t + 1}, server.{key}", gap(value, last.server[key])
        deployed = setting.stage.algorithm.deploy(last.server, last.clients)
        model = arranged(name, expected["model"], setting.data)
        yield f"round {t + 1}, model", gap(model, deployed)


def client_differences(name, setting, place, client, last, seen):
    t, row, k = place
    where = f"round {t + 1}, client {k}"
    message = seen.messages[t] | {key: v[row] for key, v in seen.probes[t].items() if key == "w"}
    for key, value in client["receives"].items():
        if key == "statistics":  # constants are not sent again
            message = {key: seen.servers[t][key]} | message
        yield f"{where}, receives.{key}", gap(value, message[key])
    for part, purpose in (("steps", Purpose.BATCHES), ("personal_steps", Purpose.PERSONAL)):
        taken = seen.steps.get((purpose, t, k), [])
        for key, rows in client.get(part, {}).items():
            if key == "w":
                rows = arranged(name, rows, setting.data)
            if taken or seen.mode != "compiled":
                assert len(taken) == len(rows)
                yield f"{where}, {part}.{key}", gap(rows, torch.stack([s[key] for s in taken]))
    for key, value in client.get("upload", {}).items():
        yield f"{where}, upload.{key}", gap(value, upload_of(seen, t, row, key))
    for key, value in client.get("state", {}).items():
        yield f"{where}, state.{key}", gap(value, last.clients[key][k])


# the weights of FedMGDA+ are the engine's solution of a quadratic program, to its tolerance
WITHIN = {"fedmgda": 1e-11}


@pytest.mark.parametrize(("name", "place", "mode"), list(every_case()))
def test_the_engine_agrees(name, place, mode):
    """Everything that clients receive, do, send and keep, and the server's states."""
    setting = setting_of(name, case_of(name, place))
    if mode == "compiled" and not expressible(setting.task):
        pytest.skip("the engine trains this model without compiled code")
    snapshots, seen = engine_run(setting, mode)
    gaps = dict(differences(name, setting, snapshots, seen))
    assert {k: v for k, v in gaps.items() if not v <= WITHIN.get(name, CLOSE)} == {}

    kept = {key for client in clients_of(setting.case) for key in client.get("state", {})}
    assert kept == snapshots[-1].clients.keys()
    sent = {key for client in clients_of(setting.case) for key in client.get("upload", {})}
    if "grad" in sent:
        sent.add("delta")  # FedMDFG sends its gradients under this name
    assert sent >= {key for uploads in seen.uploads for key in uploads}


def clients_of(case):
    return [client for done in case["rounds"] for client in done["clients"].values()]


def test_a_changed_number_is_noticed():
    setting = setting_of("scaffold", case_of("scaffold"))
    snapshots, seen = engine_run(setting, "stacked")
    value = setting.case["rounds"][1]["clients"]["2"]["upload"]["c"]
    value[3] += 1e-11
    try:
        gaps = dict(differences("scaffold", setting, snapshots, seen))
    finally:
        value[3] -= 1e-11
    assert [k for k, v in gaps.items() if v > CLOSE] == ["round 2, client 2, upload.c"]


# thresholds and guards that are not reached, and options of other variants
UNFELT = {
    ("adafedadam", "eps"),
    ("fedfa", "c"),
    ("fedfv", "alpha"),
    ("fedheal", "threshold"),
    ("fedmdfg", "armijo"),
    ("fedmdfg", "theta"),
    ("fedmgda", "eps"),
    ("mimelite", "beta2"),
    ("mimelite", "eps"),
    ("propfair", "eps"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_number_among_the_options_is_felt(name):
    """A thousandth less, and the engine differs from the vectors."""
    case = case_of(name)
    given = case["hyperparameters"]
    for option, value in given.items():
        if not isinstance(value, float) or not value or option in SOLVER:
            continue
        changed = {option: 0.999 * value}
        if (name, option) == ("fedfa", "alpha"):
            changed["beta"] = 1 - changed["alpha"]  # their sum is 1
        if (name, option) == ("fedfa", "beta"):
            changed["alpha"] = 1 - changed["beta"]
        other = case | {"hyperparameters": given | changed}
        setting = setting_of(name, other)
        gaps = dict(differences(name, setting, *engine_run(setting, "stacked")))
        felt = max(gaps.values()) > CLOSE
        assert felt == ((name, option) not in UNFELT), option


# ---- the files


def numbers_apart(path, written, fresh):
    """Check that two values of files are alike, numbers up to rounding of another platform."""
    if isinstance(fresh, np.ndarray):
        np.testing.assert_allclose(written, fresh, rtol=1e-12, atol=1e-13, err_msg=path)
    elif isinstance(fresh, dict):
        assert list(written) == list(fresh), path
        for key, value in fresh.items():
            numbers_apart(f"{path}.{key}", written[key], value)
    elif isinstance(fresh, list):
        assert len(written) == len(fresh), path
        for place, (one, other) in enumerate(zip(written, fresh, strict=True)):
            numbers_apart(f"{path}[{place}]", one, other)
    else:
        assert written == fresh, path


def some_fast(*fast):
    """Parameters: the names of all files, the given ones in the fast tests."""
    names = ["data", *METHODS]
    return [pytest.param(n, marks=[] if n in fast else [pytest.mark.slow]) for n in names]


@pytest.mark.parametrize("name", some_fast("data", "scaffold", "fedadam", "fedmdfg", "moon"))
def test_the_files_are_what_the_references_write(name):
    fresh = json.loads(text(data_file() if name == "data" else method_file(name)))
    content = (FOLDER / f"{name}.json").read_text()
    written = json.loads(content)
    assert text(written) + "\n" == content
    numbers_apart(name, check_vectors.decoded(written), check_vectors.decoded(fresh))


@pytest.mark.parametrize("name", METHODS)
def test_batches_steps_and_shapes_fit(name):
    size = {key: len(data["w0"]) for key, data in data_sets().items()}
    size["batchnorm"] += 2 * data_sets()["batchnorm"]["layers"][1]  # running statistics
    for case in method_of(name)["cases"]:
        counts = [len(y) for _, y in data_sets()[case["data"]]["clients"]]
        for plan, done in zip(
            check_vectors.numbered(case["schedule"]), case["rounds"], strict=True
        ):
            assert [int(k) for k in done["clients"]] == plan["cohort"] == sorted(plan["batches"])
            for k, batches in plan["batches"].items():
                epochs = -(-len(batches) // -(-counts[k] // 4))
                assert sorted(sum(batches, [])) == sorted([*range(counts[k])] * epochs)
                assert max(map(len, batches)) <= 4
                for rows in done["clients"][str(k)].get("steps", {}).values():
                    assert len(rows) == len(batches)
            assert done["model"].shape[-1] == size[case["data"]]


@pytest.mark.parametrize("name", METHODS)
def test_every_variant_shows(name):
    """Any two variants of a method differ in what clients do, on some problem."""
    numbers = {}
    for case in method_of(name)["cases"]:
        models = [done["model"] for done in case["rounds"]]
        steps = [v for c in clients_of(case) for v in c.get("steps", {}).values()]
        numbers.setdefault(case["variant"], {})[case["data"], case["cohorts"]] = np.concatenate(
            [np.ravel(v) for v in (*models, *steps)]
        )
    for one, other in combinations(numbers, 2):
        shared = numbers[one].keys() & numbers[other].keys()
        apart = [differ(numbers[one][key], numbers[other][key]) for key in shared]
        assert any(apart) or not apart, (one, other)


def differ(one, other):
    return len(one) != len(other) or np.abs(one - other).max() > 1e-6


def test_every_method_and_option_is_there():
    """Each method of fedbench has vectors or a reason in the README; a case names all options."""
    readme = (FOLDER / "README.md").read_text()
    left_out = {name for name in ALGORITHMS if f"- `{name}`: " in readme}
    assert left_out.isdisjoint(METHODS)
    assert left_out | METHODS.keys() == set(ALGORITHMS)
    for name in METHODS:
        options = yaml.safe_load((ROOT / "conf" / "algo" / f"{name}.yaml").read_text())
        options.pop("_target_")
        default = method_of(name)["cases"][0]["hyperparameters"]
        assert {k: v for k, v in default.items() if k not in SOLVER} == options
        for case in method_of(name)["cases"]:
            assert case["hyperparameters"].keys() == default.keys()


def test_every_reading_is_there():
    """Options that choose among named readings take every value in some case."""
    for name in METHODS:
        cases = [case["hyperparameters"] for case in method_of(name)["cases"]]
        for option, parameter in inspect.signature(factory(name)).parameters.items():
            taken = {case.get(option) for case in cases}
            missing = readings_of(parameter.annotation) - taken - DRAWN
            assert (name, option, missing) == (name, option, set())


DRAWN = {"random"}  # readings that draw numbers of their own


def readings_of(annotation):
    """The words and truth values that an annotation allows."""
    if annotation is bool:
        return {True, False}
    if get_origin(annotation) is Literal:
        return {word for word in get_args(annotation) if not isinstance(word, int)}
    return {word for part in get_args(annotation) for word in readings_of(part)}


# options of many methods, which the README explains
EXPLAINED = {*SOLVER, "weights", "server_lr"}


@pytest.mark.parametrize("name", METHODS)
def test_every_option_is_explained(name):
    """The formulas or symbols name each option, and its readings that are not the default."""
    contents = method_of(name)
    told = " ".join([*contents["formulas"], *contents["symbols"].values()])
    words = set(re.findall(r"\w+", told))
    default = contents["cases"][0]["hyperparameters"]
    for case in contents["cases"]:
        for option, value in case["hyperparameters"].items():
            if option in EXPLAINED:
                continue
            assert option in words, option
            if isinstance(value, str) and value != default[option]:
                assert f"{option} {value}" in told or f"{option}: {value}" in told, (option, value)


def test_the_readme_tells_the_momentum():
    readme = (FOLDER / "README.md").read_text()
    taken = {
        (name, case["variant"])
        for name in METHODS
        for case in method_of(name)["cases"]
        if case["hyperparameters"]["momentum"]
    }
    assert taken == {("fedavg", "local momentum 0.9"), ("fednova", "local momentum 0.9")}
    assert "`momentum` is 0 but in the variants `local momentum 0.9` of FedAvg and FedNova" in (
        " ".join(readme.split())
    )


@cache
def validator():
    return jsonschema.Draft202012Validator(json.loads((FOLDER / "schema.json").read_text()))


@pytest.mark.parametrize("name", some_fast("data", "scaffold", "ditto"))
def test_the_files_follow_the_schema(name):
    contents = json.loads((FOLDER / f"{name}.json").read_text())
    assert [error.message[:200] for error in validator().iter_errors(contents)] == []
    changed = contents | {"version": 2}
    assert list(validator().iter_errors(changed))


def test_the_vectors_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 5_000_000
