"""What is compared is what is read, wherever it lies."""

import gzip
import hashlib

import pytest
from data_files import cifar100_files, write_cifar, write_fmnist

from fedbench.data.files.download import Remote
from fedbench.data.files.verify import verify
from fedbench.data.sources import cifar10, cifar100, fmnist, mnist, wikitext2


def verdicts(source, folder):
    return {f.path.relative_to(folder).as_posix(): f.wrong for f in verify(source.OFFICIAL, folder)}


def test_one_packed_file_among_unpacked_ones_is_read_and_compared(tmp_path):
    """Fashion-MNIST: file by file the unpacked form, else the packed one."""
    write_fmnist(tmp_path)
    folder = tmp_path / "FashionMNIST" / "raw"
    names = [p.name.removesuffix(".gz") for p in sorted(folder.iterdir())]
    for name in names[1:]:
        (folder / name).write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
    found = verdicts(fmnist, tmp_path)
    assert sorted(p.split("/")[-1] for p in found) == sorted([f"{names[0]}.gz", *names[1:]])
    before = fmnist.load(tmp_path, download=False)
    (folder / f"{names[1]}.gz").write_bytes(b"damaged, and not read")
    after = fmnist.load(tmp_path, download=False)
    assert (after.x == before.x).all()


def test_both_places_of_cifar100(tmp_path):
    import pickle

    for where in ("cifar-100-python", "cifar-100-python/cifar-100-python"):
        folder = tmp_path / where.replace("/", "_") / where
        folder.mkdir(parents=True)
        for name, content in cifar100_files().items():
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))
        assert len(cifar100.load(folder.parents[where.count("/")], download=False).y) == 8
        assert set(verdicts(cifar100, tmp_path / where.replace("/", "_")).values()) == {True}


@pytest.mark.parametrize("source", [mnist, fmnist, cifar10, cifar100, wikitext2])
def test_nothing_there_is_no_finding(tmp_path, source):
    assert verify(source.OFFICIAL, tmp_path) == []


def test_every_kind_of_checksum_and_the_size(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    sums = {kind: hashlib.new(kind, b"abc").hexdigest() for kind in ("md5", "sha1", "sha256")}
    (whole,) = verify([Remote("a", (), size=3, **sums)], tmp_path)
    assert (whole.wrong, whole.verdict) == (False, "official: " + ", ".join(f"{k} {v}" for k, v in sums.items()))
    for kind in sums:
        (off,) = verify([Remote("a", (), size=3, **(sums | {kind: "0" * 8}))], tmp_path)
        assert (off.wrong, off.verdict) == (True, f"WRONG: {kind} {sums[kind]} instead of 00000000")
    assert verify([Remote("a", (), size=4, **sums)], tmp_path)[0].verdict == "WRONG: 3 bytes instead of 4"
    assert verify([Remote("a", ())], tmp_path)[0].verdict == f"no published checksum: md5 {sums['md5']}"


def test_cifar10_names_the_batch_that_differs(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar(folder)
    sums = {f"{folder.name}/{p.name}": hashlib.md5(p.read_bytes()).hexdigest() for p in folder.iterdir()}
    monkeypatch.setattr(cifar10, "OFFICIAL", [Remote(path, (), md5=md5) for path, md5 in sums.items()])
    assert set(verdicts(cifar10, tmp_path).values()) == {False}
    (folder / "data_batch_3").write_bytes((folder / "data_batch_3").read_bytes() + b".")
    assert [p for p, wrong in verdicts(cifar10, tmp_path).items() if wrong] == ["cifar-10-batches-py/data_batch_3"]
