"""Bundles of anybody: names that lead elsewhere, sizes, links, and other kinds of files."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_runs import fake_run
from published_runs import forge, sha256
from tools import rejected

from fedbench.runs import bundle as bundles
from fedbench.runs.bundle import Bundle, Kept, write_bundle
from fedbench.runs.results import Results


@pytest.fixture
def bundle(tmp_path):
    """A bundle of one run with a further file, next to a file of somebody."""
    fake_run(tmp_path / "runs", None, "fedavg")
    runs = {
        run.path.relative_to(tmp_path / "runs").as_posix(): run
        for run in Results(tmp_path / "runs")
    }
    write_bundle(tmp_path / "out", runs, lambda _: Kept(), texts={"more.json": "{}"})
    (tmp_path / "secret").write_text("{}")
    return tmp_path / "out"


def table_of(bundle):
    (file,) = bundle.rglob("*.parquet")
    return file


EMPTY = sha256(b"{}")


def named(name, digest=EMPTY):
    """A manifest with a further file."""
    return lambda facts: facts["files"].update({name: digest})


def replaced(bundle, content):
    """Put another content in the place of the runs, with a right checksum and name."""
    file = table_of(bundle)
    new = file.with_name(f"{sha256(content)[:10]}.parquet")
    file.rename(new)
    new.write_bytes(content)
    names = [path.relative_to(bundle / "evidence").as_posix() for path in (file, new)]

    def manifest(facts):
        del facts["files"][names[0]]
        facts["files"][names[1]] = sha256(content)

    path = bundle / "evidence/bundle.json"
    facts = json.loads(path.read_text())
    manifest(facts)
    path.write_text(json.dumps(facts))


def parquet(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def test_a_further_file_is_read_and_no_run(bundle):
    shown = Bundle(bundle)
    assert shown.text("more.json") == "{}"
    assert [run.meta["algo"] for run in shown.runs()] == ["fedavg"]
    with rejected("bundle.json does not list other.json"):
        shown.text("other.json")


@pytest.mark.parametrize(
    "name",
    ["../../secret", "runs/../../../secret", "/etc/hostname", "./more.json", "..", "", ".", "a//b",
     "a\\b", "a\nb", "\0"],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(bundle, name):
    forge(bundle, manifest=named(name))
    with rejected("does not lead to a place below the folder.*restore the folder"):
        Bundle(bundle)


def test_paths_of_runs_that_lead_elsewhere_are_refused(bundle):
    forge(bundle, row=lambda row: row.update(path="../" * 9 + "etc/x"))
    with rejected("does not lead to a place below the folder"):
        Bundle(bundle).runs()


@pytest.mark.parametrize("target", ["../../secret", "/etc/hostname"])
def test_links_out_of_the_folder_are_refused(bundle, target):
    (bundle / "evidence/link").symlink_to(target)
    forge(bundle, manifest=named("link"))
    with rejected("link is a link that leads outside the folder"):
        Bundle(bundle)


def test_a_link_to_the_whole_folder_is_followed(bundle, tmp_path):
    (tmp_path / "alias").symlink_to(bundle)
    assert len(Bundle(tmp_path / "alias").runs()) == 1


@pytest.mark.parametrize("name", ["pipe", "bundle.json"])
def test_a_pipe_is_not_waited_for(bundle, name):
    forge(bundle, manifest=named("pipe"))
    (bundle / "evidence" / name).unlink(missing_ok=True)
    os.mkfifo(bundle / "evidence" / name)
    with rejected(f"{name} is not a regular file"):
        Bundle(bundle)


def test_checksums_must_be_sha256(bundle):
    forge(bundle, manifest=named("more.json", "md5:99914b932bd37a50b983c5e7c90ae93b"))
    with rejected("bundle.json has for more.json 'md5:.*', which is no SHA-256"):
        Bundle(bundle)


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MOST_BYTES", 1000, "has .* bytes, and .* are left of those allowed"),
        ("MOST_MANIFEST_BYTES", 10, "bundle.json has .* bytes, and 10 are left"),
        ("_MOST_FILES", 1, "bundle.json lists 2 files, and 1 are allowed"),
        ("_MOST_RUNS", 0, "declares 1 runs and .*; 0 and"),
        ("_MOST_VALUES", 1000, "declares 1 runs and .* values and bytes; .* and 1000 are allowed"),
    ],
)
def test_sizes_are_limited(bundle, monkeypatch, limit, value, message):
    monkeypatch.setattr(bundles, limit, value)
    with rejected(message):
        Bundle(bundle)


def test_a_small_file_that_becomes_large_is_refused_before_it_is_read(bundle):
    """A million nulls take no place in the file."""
    replaced(bundle, parquet({"path": pa.nulls(10**6, pa.string())}))
    assert table_of(bundle).stat().st_size < 10**4
    with rejected("declares 1000000 runs"):
        Bundle(bundle)
    replaced(bundle, parquet({"path": ["x" * 2**29]}))
    assert table_of(bundle).stat().st_size < 2**26
    with rejected("declares 1 runs and 5.* values and bytes"):
        Bundle(bundle)


def test_other_files_are_no_table_of_runs(bundle):
    written = pq.read_table(table_of(bundle))
    replaced(bundle, b"PAR1 nothing PAR1")
    with rejected("evidence cannot be read"):
        Bundle(bundle)
    replaced(bundle, parquet({"a": [1]}))
    with rejected(r"has the columns \['a'\] instead of \['path', 'config'"):
        Bundle(bundle)
    for column, values in (("meta", [1]), ("rounds", ["text"]), ("clients", [[1]])):
        position = written.schema.names.index(column)
        replaced(
            bundle, parquet(written.set_column(position, column, pa.array(values)).to_pydict())
        )
        with rejected(f"the column {column} has values of another type"):
            Bundle(bundle)


def test_a_file_is_named_after_its_content(bundle):
    """Columns are cached by the names of their files."""
    file = table_of(bundle)
    digest = sha256(file.read_bytes())
    file.rename(file.with_name("0123456789.parquet"))
    name = file.with_name("0123456789.parquet").relative_to(bundle / "evidence").as_posix()
    path = bundle / "evidence/bundle.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"files": {name: digest}}))
    with rejected("0123456789.parquet is not named after its SHA-256"):
        Bundle(bundle)


@pytest.mark.parametrize("text", ["[]", "null", "{", "[" * 10**5, '{"format": 2, "files": []}'])
def test_a_manifest_that_is_something_else_is_refused(bundle, text):
    (bundle / "evidence/bundle.json").write_text(text)
    with rejected("evidence cannot be read"):
        Bundle(bundle)
