"""``fedbench data prepare|verify|show|export-partition NAME``: download, check and describe data sets."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

from fedbench.config.compose import Composer
from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import writing
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.data.describe import facts, owned, pictures
from fedbench.data.files.fetch import MissingFiles, verify
from fedbench.data.partitions.given import write
from fedbench.runs.build_data import as_given, federated, official_files, read_examples


def execute(args: Namespace) -> int:
    """Carry out ``fedbench data`` and return the exit status.

    Raises:
        RequestError: If the data set is unknown, or data are missing.
    """
    composer, choice = Composer(args.config_dir), f"data={args.name}"
    if args.action == "export-partition":
        file, *overrides = args.rest or [""]
        if not file or "=" in file:
            raise RequestError(f"data export-partition needs a file, as in: export-partition {args.name} clients.json")
        return _export(composer.config([choice, *overrides]), file)
    config = composer.config([choice, *args.rest])
    return {"prepare": _prepare, "verify": _verify, "show": _show}[args.action](config)


def _prepare(config: RunConfig) -> int:
    """Read the data set, downloading what is missing, so that later runs find it."""
    found = federated(config)
    print(f"{config.names.data}: {found.num_clients} clients, {owned(found)} examples", *found.sources, sep="\n")
    return 0


def _verify(config: RunConfig) -> int:
    """Compare files with their published checksums and read the data set; nothing is downloaded.

    The status is 1 if a file is not the official one, and 2 if a file is missing.
    """
    name = config.names.data
    findings = verify(official_files(config), config.data_dir)
    for path, result, _ in findings:
        print(f"{path}  {result}")
    if wrong := sum(differs for _, _, differs in findings):
        remedy = "remove them to download the official ones, or state in your results which data they contain"
        print(f"{name}: {wrong} of {len(findings)} files are not the official ones; {remedy}")
        return 1
    try:
        print(*read_examples(replace(config, data=replace(config.data, download=False))).sources, sep="\n")
    except MissingFiles as error:
        print(f"{error}; `fedbench data prepare {name}` downloads what can be downloaded")
        return 2
    return 0


def _show(config: RunConfig) -> int:
    """Describe the data set in numbers and pictures."""
    name, found = config.names.data, federated(config)
    folder = config.results_dir / "data" / name
    print("\n".join(f"{k:<10}  {v}" for k, v in {"data": name, **facts(found)}.items()))
    with writing(folder):
        for path in pictures(found, folder, name):
            print(f"written: {path}")
    return 0


def _export(config: RunConfig, file: str) -> int:
    """Write the training and test examples of every client to a file, which ``data/partition=indices`` reads."""
    path, name = user_path("FILE", file), config.names.data
    if path.exists():
        raise RequestError(f"{path} exists already; remove it, or name another file")
    found = federated(config)
    if found.shares_examples:
        what = "some examples belong to several clients, which an index file cannot express"
        raise RequestError(f"{what}; set data.partition.as_published=false")
    with writing(path):
        write(path, name, len(found.y), as_given(found))
    rule = "+data/partition=indices" if config.data.partition is None else "data/partition=indices"
    print(f"written: {path} ({found.num_clients} clients)")
    print(f"to use it: fedbench data={name} {rule} data.partition.file={path} data.clients={found.num_clients}")
    return 0
