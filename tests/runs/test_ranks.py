"""One run in several processes: the same bits for every number of them, and what becomes of one that is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import ranks_job
from command_line import FAST

import fedbench
from fedbench.simulation import cohort

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent


def start(processes, *typed):
    """Start a command in a number of processes."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
    ]
    return subprocess.Popen(
        [*command, *map(str, typed)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def torchrun(processes, *typed):
    """Carry out a command in a number of processes, and return its status and what it printed on standard error."""
    process = start(processes, *typed)
    try:
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, err


def bits(folder):
    """Models, states of server and clients, and records but for seconds, of all runs in a directory."""
    found = {
        p.relative_to(folder): p.read_bytes()
        for end in ("*.safetensors", "*.parquet")
        for p in folder.rglob(end)
    }
    for p in folder.rglob("rounds.jsonl"):
        rows = [json.loads(line) for line in p.read_text().splitlines()]
        found[p.relative_to(folder)] = [
            {k: v for k, v in r.items() if not k.startswith("seconds")} for r in rows
        ]
    return found


@pytest.mark.parametrize("form", ["sampled", pytest.param("compiled", marks=pytest.mark.slow)])
def test_every_method_leaves_the_same_bits(tmp_path, form):
    """In two processes as in one: models, server and client states after five rounds, of all methods."""
    for overrides in ranks_job.runs(form, 5):
        fedbench.run(f"{overrides} results_dir={tmp_path / 'one' / form}")
    status, err = torchrun(2, HERE / "ranks_job.py", tmp_path / "two", 5, form)
    assert status == 0, err
    assert bits(tmp_path / "one") == bits(tmp_path / "two")
    assert len(bits(tmp_path / "one")) >= 2 * len(ranks_job.runs(form, 5))


def test_a_run_goes_on_in_another_number_of_processes(tmp_path, monkeypatch):
    """Three rounds in two processes, two more in three: as five rounds in one; sums are formed part by part."""
    wanted = ["scaffold", "ditto", "fedavg", "qfedavg", "adafed", "fedcm", "mimelite"]
    monkeypatch.setattr(cohort, "_HELD_BYTES", 0)
    for overrides in ranks_job.runs("summed", 5):
        if overrides.split()[0].removeprefix("algo=") in wanted:
            fedbench.run(f"{overrides} results_dir={tmp_path / 'one' / 'summed'}")
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
    run = [
        *FAST,
        "algo=scaffold",
        "rounds=6",
        "participation=2",
        "availability=bernoulli",
        "availability.p=0.6",
    ]
    status, err = torchrun(2, "-m", "fedbench", *run, f"results_dir={tmp_path / 'two'}")
    assert status == 0, err
    fedbench.run(f"{' '.join(run)} results_dir={tmp_path / 'one'}")
    assert bits(tmp_path / "one") == bits(tmp_path / "two")
    (rows,) = (v for k, v in bits(tmp_path / "one").items() if k.name == "rounds.jsonl")
    assert rows[-1]["empty_rounds"] > 0


def rounds_done(folder):
    return sum(len(p.read_text().splitlines()) for p in folder.rglob("rounds.jsonl"))


def test_a_lost_process_ends_the_others_and_the_command_goes_on(tmp_path):
    """Ctrl-C, a damaged checkpoint and a killed process: a line each, and the model of a run that nothing disturbed."""
    run = [
        *FAST,
        "algo=scaffold",
        "rounds=400",
        "eval_every=10",
        "keep_state=true",
        "engine.client_state=file",
    ]
    disturbed = ["-m", "fedbench", *run, f"results_dir={tmp_path / 'two'}"]

    process = start(2, *disturbed)
    while rounds_done(tmp_path) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert "fedbench: interrupted at round" in said
    assert "run the same command again to resume" in said

    (state,) = (tmp_path / "two").rglob("round_*.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    before = rounds_done(tmp_path)
    process = start(2, *disturbed)
    while rounds_done(tmp_path) < before + 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    second = next(
        p for p in psutil.Process(process.pid).children() if p.environ().get("RANK") == "1"
    )
    second.kill()
    said = process.communicate()[1]
    assert process.returncode != 0
    assert said.count("fedbench: starting over: ") == 1
    assert (
        said.count("fedbench: another process of this run is gone")
        + said.count("fedbench: interrupted")
        == 1
    )

    status, err = torchrun(2, *disturbed)
    assert status == 0, err
    fedbench.run(f"{' '.join(run)} results_dir={tmp_path / 'one'}")
    (meta,) = (tmp_path / "two").rglob("meta.json")
    engine = json.loads(meta.read_text())["engine"]
    assert engine["processes"] == 2
    assert engine["bytes_sent"] > 0
    assert bits(tmp_path / "one") == bits(tmp_path / "two")


def test_processes_that_ask_for_different_runs_are_refused(tmp_path):
    script = tmp_path / "each.py"
    script.write_text(
        "import os, fedbench\n"
        f"fedbench.run(f'algo=fedavg {' '.join(FAST)} seed={{os.environ[\"RANK\"]}} results_dir={tmp_path / 'none'}')\n"
    )
    status, err = torchrun(2, script)
    assert status != 0
    assert "the processes that torchrun has started ask for different runs" in err
    assert not (tmp_path / "none").exists()


def test_wrong_requests_are_refused_once(tmp_path):
    """A wrong value, and a command that is no run: one line in all, status 2 of each process."""
    for typed, line in (
        (
            ["algo=fedporx"],
            "fedbench: algo=fedporx is unknown; did you mean fedprox? Choices: `fedbench list algo`",
        ),
        (
            ["-m", "seed=0,1"],
            "fedbench: torchrun is for one run at a time: fedbench KEY=VALUE ...; remove torchrun",
        ),
    ):
        status, err = torchrun(2, "-m", "fedbench", *typed, f"results_dir={tmp_path / 'none'}")
        assert status == 1  # that of torchrun
        assert [said for said in err.splitlines() if said.startswith("fedbench: ")] == [line]
    assert not (tmp_path / "none").exists()
