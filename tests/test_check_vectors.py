"""The checker of the test vectors: it agrees with right implementations and locates faults."""

import ast
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import check_vectors
import numpy as np
import pytest
from tools import ROOT

PLAIN = ROOT / "examples" / "vectors" / "plain.py"
FOLDER = ROOT / "results" / "vectors"
METHODS = ["fedavg", "scaffold", "fedadam"]


def outcomes(path, method, capsys, *options):
    """The exit status of a check, and its lines by case."""
    status = check_vectors.main([method, str(path), "--function", method, *options])
    lines = capsys.readouterr().out.splitlines()
    return status, dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("method", METHODS)
def test_the_plain_versions_agree(method, capsys):
    status, cases = outcomes(PLAIN, method, capsys, "--tolerance", "1e-12")
    assert status == 0
    assert len(cases) >= 6
    assert all(line.startswith("agrees") for line in cases.values())
    left_out = "receives.w" in cases["default (softmax, sampled clients)"]
    assert left_out == (method == "fedadam")


# bugs in copies of the plain versions: the method, the variant that shows the bug, the place of the
# first difference, and what is replaced by what
BUGS = {
    "wrong sign of the correction": (
        "scaffold",
        "default",
        "round 2, client 1, step 1: steps.w",
        ("correction=c - own[k]", "correction=own[k] - c"),
    ),
    "control variate updated before its use": (
        "scaffold",
        "default",
        "round 1, client 2: receives.c",
        (
            '            batches = plan["batches"][k]\n',
            '            batches = plan["batches"][k]\n            c = c + change\n',
        ),
    ),
    "control variate without the rate": (
        "scaffold",
        "default",
        "round 1, client 0: upload.c",
        ('(len(batches) * o["lr"])', "len(batches)"),
    ),
    "epochs counted as steps": (
        "scaffold",
        "default",
        "round 1, client 0: upload.c",
        ("(len(batches) *", "(-(-len(batches) // 2) *"),
    ),
    "division by C in the place of N": (
        "scaffold",
        "default",
        "round 1, server: server.c",
        ('len(plan["cohort"]) / len(data["clients"]) * change', "change"),
    ),
    "stale state": (
        "scaffold",
        "default",
        "round 2, client 2, step 1: steps.w",
        ("            own[k] = new\n", ""),
    ),
    "weights by size for uniform ones": (
        "scaffold",
        "default",
        "round 1, server: server.c",
        ('if weights == "size":', "if True:"),
    ),
    "gradient at the local model for option 1": (
        "scaffold",
        "option 1",
        "round 1, client 0: upload.c",
        ("new = gradient(w, x, y,", "new = gradient(models[-1], x, y,"),
    ),
    "last batch dropped": (
        "fedavg",
        "default",
        "round 1, client 0, step 4: steps.w should have 4 steps, got 3",
        ("in batches:", "in batches[: max(1, len(batches) - 1)]:"),
    ),
    "momentum kept between rounds": (
        "fedavg",
        "local momentum 0.9",
        "round 2, client 2, step 1: steps.w",
        ("buffer = np.zeros_like(w)", "buffer = data.setdefault(k, np.zeros_like(w))"),
        ('buffer = o["momentum"]', 'buffer[:] = o["momentum"]'),
    ),
    "server step on the wrong side": (
        "fedavg",
        "default",
        "round 1, server: server.w",
        (
            'w = w - o["server_lr"] * d\n        states',
            'w = w + o["server_lr"] * d\n        states',
        ),
    ),
    "clients train one after another": (
        "fedavg",
        "default",
        "round 1, client 2: receives.w",
        (
            '"upload": {"delta": delta},\n            }\n',
            '"upload": {"delta": delta},\n            }\n            w = models[-1]\n',
        ),
    ),
    "bias correction missing": (
        "fedadam",
        "bias_correction",
        "round 1, server: server.w",
        ('if o["bias_correction"]:', "if False:"),
    ),
    "exponent of the bias correction one too high": (
        "fedadam",
        "bias_correction",
        "round 1, server: server.w",
        ('mean = m / (1 - o["beta1"] ** t)', 'mean = m / (1 - o["beta1"] ** (t + 1))'),
    ),
    "second moment from 0": (
        "fedadam",
        "default",
        "round 1, server: server.v",
        ('o["tau"] ** 2 if', "0.0 if"),
    ),
    "moments forgotten": (
        "fedadam",
        "default",
        "round 2, server: server.m",
        ('m = o["beta1"] * m', 'm = o["beta1"] * 0'),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_located(bug, tmp_path, capsys):
    method, variant, place, *replacements = BUGS[bug]
    source = PLAIN.read_text()
    start = source.index(f"def {method}(")
    end = source.find("\n\n\n", start)
    body = source[start:end]
    shared = source[: source.index("# ---- the methods")]
    for old, new in replacements:
        assert shared.count(old) + body.count(old) == 1
        body = body.replace(old, new)
        shared = shared.replace(old, new)
    copy = tmp_path / "copy.py"
    copy.write_text(f"{shared}\n{body}\n")

    status, cases = outcomes(copy, method, capsys)
    assert status == 1
    assert cases[f"{variant} (softmax, sampled clients)"].startswith(place)


def test_the_loop_of_the_readme_is_fedavg():
    readme = (FOLDER / "README.md").read_text()
    (loop,) = re.findall(r"```python\n(for plan in .*?)```", readme, re.DOTALL)
    assert len(loop.splitlines()) <= 20
    plain = runpy.run_path(str(PLAIN))
    case = check_vectors.read_method(FOLDER, "fedavg")["cases"][0]
    data = check_vectors.read_data(FOLDER)[case["data"]]
    x, y = zip(*data["clients"], strict=True)
    names = {
        **{name: case["hyperparameters"][name] for name in ("lr", "momentum", "server_lr")},
        "schedule": check_vectors.numbered(case["schedule"]),
        "w": data["w0"],
        "x": x,
        "y": y,
        "gradient": lambda v, x, y: plain["gradient"](v, x, y, data["tensors"]),
    }
    exec(loop, names)
    np.testing.assert_allclose(names["w"], case["rounds"][-1]["model"], rtol=1e-12)


# ---- the checker itself

CASE = "default (softmax, sampled clients)"


def states_of(method):
    """What the file of a method says, as an implementation would return it."""
    case = check_vectors.read_method(FOLDER, method)["cases"][0]
    return case, [
        {**done, "clients": {int(k): client for k, client in done["clients"].items()}}
        for done in json.loads(json.dumps(case["rounds"], default=lambda v: v.tolist()))
    ]


@pytest.mark.parametrize("method", ["fafed", "ditto", "apfl", "fedheal", "drfa"])
def test_what_the_file_says_agrees(method):
    case, states = states_of(method)
    assert check_vectors.first_difference(case, states, 0.0) is None
    assert check_vectors.omitted(case, states) == []


def test_the_earliest_difference_is_told():
    """In the order of rounds, clients, steps, uploads, states, and the server; also NaN."""
    case, states = states_of("scaffold")
    first = states[0]["clients"][2]

    def changed(values, *index):
        for i in index[:-1]:
            values = values[i]
        values[index[-1]] += 1e-6

    later = [
        (states[2]["model"], (5,), "round 3: model at entry 5 should be "),
        (states[1]["server"]["c"], (0,), "round 2, server: server.c at entry 0 "),
        (states[1]["clients"][1]["state"]["c"], (9,), "round 2, client 1: state.c at entry 9 "),
        (first["upload"]["delta"], (1,), "round 1, client 2: upload.delta at entry 1 "),
        (first["steps"]["w"], (0, 3), "round 1, client 2, step 1: steps.w at entry 3 "),
        (first["receives"]["c"], (2,), "round 1, client 2: receives.c at entry 2 "),
    ]
    for values, index, message in later:
        changed(values, *index)
        assert str(check_vectors.first_difference(case, states)).startswith(message)
    first["receives"]["w"][0] = float("nan")
    assert "entry 0 should be 0.45, got nan" in str(check_vectors.first_difference(case, states))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[1].pop("model"), "round 2: model is missing; every round needs it"),
        (lambda s: s[0]["server"].update(d=1), "round 1, server: server.d is not among the values"),
        (lambda s: s[0]["clients"].update({1: {}}), "round 1, client 1: client does not take part"),
        (lambda s: s[0]["model"].append(0.0), r"round 1: model should have shape \(10,\), got"),
        (lambda s: s[0].update(model="w"), r"round 1: model should be numbers of shape \(10,\)"),
        (
            lambda s: s[0]["clients"][0]["steps"].update(v=[]),
            "round 1, client 0: steps.v is not among the values here, which are w",
        ),
    ],
)
def test_other_names_and_shapes_differ(change, message):
    case, states = states_of("fedavg")
    change(states)
    assert re.match(message, str(check_vectors.first_difference(case, states)))


def test_another_number_of_steps_is_told_before_their_values():
    case, states = states_of("fedavg")
    first = states[0]["clients"][0]
    first["steps"]["w"].insert(0, first["receives"]["w"])
    assert str(check_vectors.first_difference(case, states)) == (
        "round 1, client 0, step 5: steps.w should have 4 steps, got 5; the value before the first "
        "step is not one of them"
    )


RULE = "it must return a list with a dictionary for each round"
# a change of the states, or what is returned in their place, and the message
FORMS = {
    "nothing": (lambda s: None, f"the function returned None; {RULE}"),
    "a dictionary": (lambda s: {}, f"the function returned a value of type dict; {RULE}"),
    "too many": (lambda s: [*s, s[0]], f"the function returned 4 rounds; {RULE}, here 3"),
    "too few": (lambda s: s[:2], f"the function returned 2 rounds; {RULE}, here 3"),
    "arrays": (
        lambda s: [np.zeros(10)] * 3,
        "round 1 is an array of shape (10,); it must be a dictionary with some of clients, server, "
        "model",
    ),
    "servr": (
        lambda s: s[1].update(servr={}),
        "round 2: 'servr' is unknown; there are clients, server, model",
    ),
    "uploads": (
        lambda s: s[0]["clients"][2].update(uploads={}),
        "round 1, client 2: 'uploads' is unknown; there are receives, steps, personal_steps, "
        "upload, state",
    ),
    "list of clients": (
        lambda s: s[0].update(clients=[]),
        "round 1: clients is a value of type list; it must be a dictionary with a dictionary for "
        "each client",
    ),
    "client": (
        lambda s: s[0]["clients"].update({0: []}),
        "round 1, client 0 is a value of type list; it must be a dictionary with some of receives,",
    ),
    "server": (lambda s: s[0].update(server=None), "round 1: server is None; it must be a dict"),
    "receives": (
        lambda s: s[0]["clients"][0].update(receives=np.zeros(10)),
        "round 1, client 0: receives is an array of shape (10,); it must be a dictionary of values "
        "by name",
    ),
    "state": (
        lambda s: s[0]["clients"][0].update(state=None),
        "round 1, client 0: state is None; it must be a dictionary",
    ),
    "scalar": (
        lambda s: s[0]["clients"][0]["steps"].update(w=0.5),
        "round 1, client 0: steps.w is a value of type float; it must have a row for each local",
    ),
    "array of no dimension": (
        lambda s: s[0]["clients"][0]["steps"].update(w=np.array(0.5)),
        "round 1, client 0: steps.w is an array of shape (); it must have a row for each local",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_another_form_is_told(form):
    change, message = FORMS[form]
    case, states = states_of("fedavg")
    changed = change(states)
    given = states if changed is None and form != "nothing" else changed
    for function in (check_vectors.first_difference, check_vectors.omitted):
        with pytest.raises(check_vectors.WrongForm) as raised:
            function(case, given)
        assert str(raised.value).startswith(message)


def test_a_case_that_fails_is_named_and_the_others_go_on(tmp_path, capsys):
    """A function that changes what it is given, fails for one variant, and returns None for one."""
    file = tmp_path / "own.py"
    file.write_text(
        f"import runpy\nfedavg = runpy.run_path({str(PLAIN)!r})['fedavg']\n"
        "def train(data, w0, schedule, hyperparameters):\n"
        "    states = fedavg(data, w0, schedule, hyperparameters)\n"
        "    data['clients'][0][0][:] = 0\n"
        "    schedule[0]['cohort'].clear()\n"
        "    if hyperparameters['weights'] == 'uniform':\n"
        "        return hyperparameters['wieghts']\n"
        "    return None if hyperparameters['momentum'] else states\n"
    )
    assert check_vectors.main(["fedavg", str(file)]) == 2
    shown = capsys.readouterr()
    lines = dict(line.split(": ", 1) for line in shown.out.splitlines())
    end = "(softmax, sampled clients)"
    assert lines.pop(f"weights uniform {end}") == "the function failed: KeyError: 'wieghts'"
    assert lines.pop(f"local momentum 0.9 {end}") == f"the function returned None; {RULE}"
    assert len(lines) >= 4
    assert set(lines.values()) == {"agrees"}
    assert "in train" in shown.err


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "scripts" / "check_vectors.py",
        ROOT / "scripts" / "write_vectors.py",
        PLAIN,
        *(ROOT / "scripts" / "vectors").rglob("*.py"),
    ],
    ids=lambda path: path.name,
)
def test_the_references_and_the_checker_need_numpy_alone(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert imported - sys.stdlib_module_names <= {"numpy", "vectors"}


@pytest.mark.processes
def test_it_runs_alone(tmp_path):
    """The command, alone in a directory with the vectors of one method."""
    script = shutil.copy(ROOT / "scripts" / "check_vectors.py", tmp_path)
    for name in ("data.json", "fedavg.json"):
        shutil.copy(FOLDER / name, tmp_path)
    command = [sys.executable, "-I", script, "fedavg", PLAIN, "--vectors", tmp_path]

    def run(*options):
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    done = run("--function", "fedavg", "--variant", "default")
    assert (done.returncode, done.stdout.count("agrees"), done.stderr) == (0, 3, "")
    command[5:] = []
    done = run("--function", "fedavg", "--variant", "default")
    assert (done.returncode, done.stdout.count("agrees"), done.stderr) == (0, 3, "")
    for options, message in [
        ((), "has no function 'train'; see --function"),
        (
            ("--function", "fedavg", "--variant", "x"),
            "fedavg has no variant 'x'; it has ['default'",
        ),
    ]:
        done = run(*options)
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.processes
def test_a_reader_that_stops_is_no_error():
    """As ``| head -n 1``: the script still writes when nobody reads."""
    command = [sys.executable, "-c", CLOSED, "fedavg", PLAIN, "--function", "fedavg"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")


# the script with an output that nobody reads
CLOSED = f"""
import os, runpy
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 1)
runpy.run_path({str(ROOT / "scripts" / "check_vectors.py")!r}, run_name="__main__")
"""


def test_the_vectors_are_found_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check_vectors, "VECTORS", tmp_path / "absent")
    with pytest.raises(check_vectors.WrongRequest, match="absent, .*scripts, vectors; use --vect"):
        check_vectors.folder_of(None)
    with pytest.raises(check_vectors.WrongRequest, match="data.json in elsewhere; use --vectors"):
        check_vectors.folder_of(Path("elsewhere"))
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "data.json").touch()
    assert check_vectors.folder_of(None) == Path("vectors")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("train = 1", "own.py has no function 'train'; see --function"),
        (
            "def train(data, w0): pass",
            "train must take 4 arguments, which are data, w0, schedule, hyperparameters: too many",
        ),
        ("raise RuntimeError('x')", "own.py cannot be run: RuntimeError: x"),
    ],
)
def test_a_file_without_a_fit_function_is_refused(content, message, tmp_path, capsys):
    file = tmp_path / "own.py"
    file.write_text(content)
    assert check_vectors.main(["fedavg", str(file)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", str(PLAIN)], "has no vectors of 'data'; it has adafed, adafedadam,"),
        (["scaffold", str(ROOT)], "is not a file; give a Python file"),
        (["scafold", str(PLAIN)], "has no vectors of 'scafold'; it has adafed, adafedadam,"),
        (["scaffold", "nowhere.py"], "nowhere.py does not exist; give a Python file"),
    ],
)
def test_a_wrong_request_is_refused(arguments, message, capsys):
    assert check_vectors.main(arguments) == 2
    assert message in capsys.readouterr().err
