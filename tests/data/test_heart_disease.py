"""Fed-Heart-Disease, on small files in the official form made here, and on the real ones."""

import hashlib
import sys
from dataclasses import replace

import numpy as np
import pytest
from data_files import check, write
from loopback import serving
from tools import rejected

from fedbench.data.files.fetch import Remote
from fedbench.data.sources import heart_disease

CENTRES = ("cleveland", "hungarian", "switzerland", "va")
TRAINED = [199, 172, 30, 85]
TESTED = [104, 89, 16, 45]


def patient(age, pain="1", ecg="0", ill=0, slope="?"):
    """A line of a file: only these values differ between patients."""
    return f"{age},1,{pain},120,200,0,{ecg},150,0,1.5,{slope},?,?,{ill}\n"


def centre(first, size=6, ill=lambda k: k % 2):
    return "".join(patient(first + k, ill=ill(k)) for k in range(size))


FILES = {
    # the first category has no indicator; two lines are incomplete; slope, vessels and thal may be
    "cleveland": patient(30, "1", "0")
    + patient(31, "2", "1", 3)
    + patient("?")
    + patient(32, "3", "2", slope="1")
    + patient(33, "4", "?")
    + patient(34, "4", "0", 1)
    + patient(35, "4", "0", 1),
    "hungarian": centre(40),
    "switzerland": centre(50, size=4, ill=lambda k: 1),
    "va": centre(60),
}


def write_heart(folder):
    for name, text in FILES.items():
        write(folder / f"heart_disease/processed.{name}.data", text)


@pytest.fixture
def heart(tmp_path):
    write_heart(tmp_path)
    return tmp_path


def rows_of(examples, client, held_out):
    return (examples.owner == client) & (examples.held_out == held_out)


def test_centres_are_clients_and_incomplete_patients_are_left_out(heart):
    e = heart_disease.load(heart, 0)
    check(e, names=CENTRES, classes=2, shape=(21, 13), unofficial=e.sources)
    assert e.sources == ("Heart Disease: not the official files (sha256 differs)",)
    assert np.bincount(e.owner).tolist() == [5, 6, 4, 6]
    assert np.bincount(e.owner[e.held_out]).tolist() == [2, 3, 2, 3]  # 34 %, rounded up
    assert e.y[e.owner == 2].tolist() == [1] * 4


def test_the_inputs_of_a_patient(heart):
    x, y = heart_disease._patients(heart / "heart_disease/processed.cleveland.data")
    same = [1, 120, 200, 0, 150, 0, 1.5]
    assert x[:, :8].tolist() == [[age, *same] for age in (30, 31, 32, 34, 35)]
    assert x[:, 8:].tolist() == [
        [0, 0, 0, 0, 0],
        [1, 0, 0, 1, 0],
        [0, 1, 0, 0, 1],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0],
    ]
    assert y.tolist() == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("pooled", [False, True])
def test_patients_are_standardised_with_training_patients(heart, pooled):
    """The ages of a centre's training patients, or of all; constant inputs become 0."""
    e = heart_disease.load(heart, 0, pooled_test=pooled)
    centres = [
        heart_disease._patients(path)[0][:, 0] for path in heart_disease.FILES[0].existing(heart)
    ]
    tests = [
        heart_disease._test_patients(heart_disease._patients(path)[1], 43)
        for path in heart_disease.FILES[0].existing(heart)
    ]
    ages = [age[~tested] for age, tested in zip(centres, tests, strict=True)]
    for k, (age, tested) in enumerate(zip(centres, tests, strict=True)):
        train = ages[k]
        reference = np.concatenate(ages) if pooled else train
        for held_out, values, by in ((False, train, train), (True, age[tested], reference)):
            wanted = (values - by.mean()) / by.std(ddof=1)
            assert e.x[rows_of(e, k, held_out), 0] == pytest.approx(wanted)
    assert (e.x[:, 1] == 0).all()


def test_an_input_that_is_constant_in_training_keeps_its_unit():
    reference = np.array([[1.0, 2.0], [1.0, 4.0]])
    x = heart_disease._standardised(np.array([[3.0, 3.0]]), reference)
    assert x.tolist() == [[2.0, 0.0]]


def test_the_split_has_a_seed_of_its_own_or_that_of_the_data(heart):
    def ages(seed, **options):
        e = heart_disease.load(heart, seed, **options)
        return e.x[e.held_out].tolist()

    assert ages(0) == ages(1) == ages(2, split_seed=43) == ages(43, split_seed=None)
    drawn = {str(ages(seed, split_seed=None)) for seed in range(5)}
    assert len(drawn) > 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n" * 6, "va.data must have 14 numbers per line .*the first line has 3"),
        (FILES["va"].replace("120", "x"), "va.data must have 14 numbers .*could not convert"),
        (FILES["va"].replace("120", "1e300"), "va.data must have .*numbers beyond 32 bits"),
        (centre(60, size=3), "va.data must have .* 4 complete lines .3 complete lines"),
    ],
)
def test_other_files_are_refused(heart, text, message):
    write(heart / "heart_disease/processed.va.data", text)
    with rejected(message):
        heart_disease.load(heart, 0)


def test_without_scikit_learn_the_message_names_the_extra(heart, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    with rejected(r"data=heart_disease needs the package scikit-learn; run: .*\[heart\]"):
        heart_disease.load(heart, 0)


def test_missing_files_are_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("FEDBENCH_OFFLINE")
    monkeypatch.delenv("FEDBENCH_MIRRORS", raising=False)
    with serving() as server:
        remotes = []
        for remote in heart_disease.FILES[0].remotes:
            content = FILES[remote.path.split(".")[1]].encode()
            server.files[remote.path] = content
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            remotes.append(Remote(remote.path, (f"{server.root}/{remote.path}",), digest))
        files = replace(heart_disease.FILES[0], remotes=remotes)
        monkeypatch.setattr(heart_disease, "FILES", (files,))
        e = heart_disease.load(tmp_path, 0)
        assert server.asked == [remote.path for remote in remotes]
    check(e, names=CENTRES, sources=("Heart Disease: official files",), unofficial=())


# ---- the real data


@pytest.mark.data("heart_disease")
def test_real_heart_disease(real_data):
    """The patients and the split of FLamby."""
    e = heart_disease.load(real_data, 0)
    check(e, shape=(740, 13), sources=("Heart Disease: official files",), unofficial=())
    assert np.bincount(e.owner[~e.held_out]).tolist() == TRAINED
    assert np.bincount(e.owner[e.held_out]).tolist() == TESTED
    ill = [[e.y[rows_of(e, k, h)].sum() for k in range(4)] for h in (False, True)]
    assert ill == [[91, 65, 30, 66], [48, 33, 15, 35]]


@pytest.mark.data("heart_disease")
def test_real_test_patients(real_data):
    """The first of each centre, counted among its complete patients."""
    found = []
    for path in heart_disease.FILES[0].existing(real_data):
        _, y = heart_disease._patients(path)
        tested = heart_disease._test_patients(y, 43)
        found.append(np.flatnonzero(tested)[:8].tolist())
    assert found == [
        [5, 13, 16, 24, 26, 34, 40, 42],
        [3, 7, 16, 21, 25, 26, 27, 28],
        [5, 6, 7, 8, 13, 14, 18, 19],
        [1, 5, 6, 9, 12, 26, 29, 33],
    ]
