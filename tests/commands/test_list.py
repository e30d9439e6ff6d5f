"""``fedbench list data NAME``: defaults, licence and citation of one data set."""


def test_a_data_set(fed):
    status, out, _ = fed("list", "data", "fmnist_dir0.5")
    facts = dict(line.split(maxsplit=1) for line in out)
    assert status == 0
    assert facts["data"].startswith("fmnist_dir0.5: Fashion-MNIST")
    assert facts["partition"].startswith("dirichlet")
    assert facts["source"] == "fedbench.data.sources.fmnist.load"
    assert facts["licence"] == "MIT"
    assert "Xiao, Rasul, Vollgraf" in facts["cite"]


def test_a_data_set_of_your_own(fed, tmp_path):
    (tmp_path / "own" / "data").mkdir(parents=True)
    (tmp_path / "own" / "data" / "mine.yaml").write_text("# My data\nsource:\n  _target_: mine.load\n")
    status, out, _ = fed("list", "data", "mine", "--config-dir", "own")
    assert status == 0
    assert out == [
        "data       mine: My data",
        "partition  natural: as the source records it",
        "source     mine.load",
        "licence    not recorded: the source is not one of fedbench's",
        "cite       not recorded",
    ]


def test_an_unknown_one_is_refused(fed):
    status, _, error = fed("list", "data", "fmnst_iid")
    assert status == 2
    assert "data=fmnst_iid is unknown; did you mean fmnist_iid?" in error
    status, _, error = fed("list", "algo", "fedavg", "more")
    assert (status, "list takes one of" in error) == (2, True)
