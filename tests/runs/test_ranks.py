"""One run in several processes: the same bits for every number of them, and lost processes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import ranks_job
from command_line import FAST, meta_of, rows_without_clocks

import fedbench
from fedbench.simulation import cohort

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent


def start(processes, *typed):
    """Start a command in a number of processes."""
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.Popen(
        [sys.executable, "-m", *torchrun, *map(str, typed)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def torchrun(processes, *typed):
    """Run a command in a number of processes; returns its status and standard error."""
    process = start(processes, *typed)
    try:
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, err


def bits(folder):
    """Models, states of server and clients, and records but for seconds, of all runs."""
    content = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.suffix in (".safetensors", ".parquet"):
            content[name] = path.read_bytes()
        elif path.name == "rounds.jsonl":
            content[name] = rows_without_clocks(path.parent)
    return content


def in_one_process(overrides, results):
    fedbench.run(f"{overrides} results_dir={results}")


def wait_for_rounds(process, folder, number):
    """Wait until this many rounds are recorded."""

    def recorded():
        return sum(len(p.read_text().splitlines()) for p in folder.rglob("rounds.jsonl"))

    number += recorded()
    while recorded() < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize(
    "form",
    ["sampled", pytest.param("compiled", marks=pytest.mark.slow)],
)
def test_every_method_leaves_the_same_bits(tmp_path, form):
    """Models and states after three rounds in two processes are those in one process."""
    for overrides in ranks_job.runs(form, 3):
        in_one_process(overrides, tmp_path / "one" / form)
    status, err = torchrun(2, HERE / "ranks_job.py", tmp_path / "two", 3, form)
    assert status == 0, err
    assert bits(tmp_path / "one") == bits(tmp_path / "two")
    assert len(bits(tmp_path / "one")) >= 2 * len(ranks_job.runs(form, 3))


def test_a_run_goes_on_in_another_number_of_processes(tmp_path, monkeypatch):
    """Three rounds in two processes and two more in three are five rounds in one process."""
    wanted = "scaffold ditto fedavg adafed mimelite".split()
    monkeypatch.setattr(cohort, "_HELD_BYTES", 0)
    for overrides in ranks_job.runs("summed", 5):
        if overrides.split()[0].removeprefix("algo=") in wanted:
            in_one_process(overrides, tmp_path / "one" / "summed")
    for processes, rounds in ((2, 3), (3, 5)):
        status, err = torchrun(
            processes, HERE / "ranks_job.py", tmp_path / "more", rounds, "summed", *wanted
        )
        assert status == 0, err
    assert err.count("continuing from round 2") == len(wanted)
    one, more = bits(tmp_path / "one"), bits(tmp_path / "more")
    assert len(one) >= 2 * len(wanted)
    assert {k: more[k] for k in one} == one


def test_what_the_processes_do_together(tmp_path):
    """Outcomes, limits and errors are the same in all: see ranks_check.py."""
    status, err = torchrun(2, HERE / "ranks_check.py", tmp_path)
    assert status == 0, err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]


def test_a_run_in_which_results_are_lost_leaves_the_same_bits(tmp_path):
    """Draws and counts of scenarios are those of every process, also in rounds without results."""
    lossy = ["availability=bernoulli", "availability.p=0.6"]
    run = [*FAST, "algo=scaffold", "rounds=6", "participation=2", *lossy]
    status, err = torchrun(2, "-m", "fedbench", *run, f"results_dir={tmp_path / 'two'}")
    assert status == 0, err
    in_one_process(" ".join(run), tmp_path / "one")
    assert bits(tmp_path / "one") == bits(tmp_path / "two")
    (rows,) = (v for k, v in bits(tmp_path / "one").items() if k.name == "rounds.jsonl")
    assert rows[-1]["empty_rounds"] > 0


def test_a_lost_process_ends_the_others_and_the_command_goes_on(tmp_path):
    """Ctrl-C, a damaged checkpoint and a killed process: a line each, and the undisturbed model."""
    kept = ["keep_state=true", "engine.client_state=file"]
    run = [*FAST, "algo=scaffold", "rounds=400", "eval_every=10", *kept]
    disturbed = ["-m", "fedbench", *run, f"results_dir={tmp_path / 'two'}"]

    process = start(2, *disturbed)
    wait_for_rounds(process, tmp_path, 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert "fedbench: interrupted at round" in err
    assert "run the same command again to resume" in err

    (state,) = (tmp_path / "two").rglob("round_*.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    (rows,) = (tmp_path / "two").rglob("rounds.jsonl")
    rows.write_text("")  # the rounds waited for are those of the new start
    process = start(2, *disturbed)
    wait_for_rounds(process, tmp_path, 3)
    children = psutil.Process(process.pid).children()
    second = next(p for p in children if p.environ().get("RANK") == "1")
    second.kill()
    _, err = process.communicate()
    assert process.returncode != 0
    assert err.count("fedbench: starting over: ") == 1
    ended = re.findall("fedbench: (another process of this run is gone|interrupted)", err)
    assert len(ended) == 1

    status, err = torchrun(2, *disturbed)
    assert status == 0, err
    in_one_process(" ".join(run), tmp_path / "one")
    (meta,) = (tmp_path / "two").rglob("meta.json")
    engine = meta_of(meta.parent)["engine"]
    assert engine["processes"] == 2
    assert engine["bytes_sent"] > 0
    assert bits(tmp_path / "one") == bits(tmp_path / "two")


def test_processes_that_ask_for_different_runs_are_refused(tmp_path):
    script = tmp_path / "each.py"
    script.write_text(
        "import os, fedbench\n"
        f"run = 'algo=fedavg {' '.join(FAST)} results_dir={tmp_path / 'none'}'\n"
        "fedbench.run(f'{run} seed={os.environ[\"RANK\"]}')\n"
    )
    status, err = torchrun(2, script)
    assert status != 0
    assert "the processes that torchrun has started ask for different runs" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["algo=fedporx"], "algo=fedporx is unknown; did you mean fedprox?"),
        (["-m", "seed=0,1"], "torchrun is for one run at a time"),
    ],
)
def test_wrong_requests_are_refused_once(tmp_path, typed, message):
    """One line in all."""
    status, err = torchrun(2, "-m", "fedbench", *typed, f"results_dir={tmp_path / 'none'}")
    assert status == 1  # that of torchrun
    (line,) = [line for line in err.splitlines() if line.startswith("fedbench: ")]
    assert line.startswith(f"fedbench: {message}")
    assert not (tmp_path / "none").exists()
