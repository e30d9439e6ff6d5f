"""``fedbench data ACTION NAME``: download, check and describe data sets."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedbench.commands.result import CommandResult
from fedbench.config.compose import Composer
from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import replace_file, writing
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.data.dataset import FederatedDataset
from fedbench.data.describe import draw_labels, facts, label_counts, owned
from fedbench.data.files.fetch import MissingFiles, verify
from fedbench.data.partitions.given import write
from fedbench.reports.charts import label_matrix
from fedbench.reports.page import render_page
from fedbench.runs.build_data import as_given, federated, read_examples
from fedbench.runs.source_files import official_files

_CELLS = 20_000  # maximum number of cells of a label matrix


def execute(
    action: str,
    name: str,
    rest: Sequence[str] = (),
    config_dir: Path | None = None,
) -> CommandResult:
    """Prepare, verify, show or export a data set.

    Args:
        action: ``prepare``, ``verify``, ``show`` or ``export-partition``.
        name: The data set.
        rest: The output file of ``export-partition``, and overrides.
        config_dir: The user's directory with config files and modules.

    Raises:
        RequestError: If the data set is unknown or data are missing.
    """
    overrides = list(rest)
    file = overrides.pop(0) if action == "export-partition" and overrides else ""
    if action == "export-partition" and (not file or "=" in file):
        raise RequestError(
            f"data export-partition needs a file, as in: export-partition {name} clients.json"
        )

    config = Composer(config_dir).config([f"data={name}", *overrides])
    if action == "verify":
        return CommandResult(_verify(config))
    if action == "export-partition":
        _export(config, user_path("FILE", file))
    elif action == "show":
        _show(config)
    else:
        data = federated(config)  # also downloads missing files for later runs
        print(
            f"{name}: {data.num_clients} clients, {owned(data)} examples", *data.sources, sep="\n"
        )
    return CommandResult()


def _verify(config: RunConfig) -> int:
    """Compare files with their published checksums and read the data set; nothing is downloaded.

    Returns:
        The exit status: 1 if a file is not the official one, 2 if a file is missing, else 0.
    """
    name = config.names.data
    findings = verify(official_files(config), config.data_dir)
    for path, result, _ in findings:
        print(f"{path}  {result}")
    if wrong := sum(differs for _, _, differs in findings):
        remedy = (
            "remove them to download the official ones, "
            "or state in your results which data they contain"
        )
        print(f"{name}: {wrong} of {len(findings)} files are not the official ones; {remedy}")
        return 1
    try:
        print(
            *read_examples(replace(config, data=replace(config.data, download=False))).sources,
            sep="\n",
        )
    except MissingFiles as error:
        print(f"{error}; `fedbench data prepare {name}` downloads what can be downloaded")
        return 2
    return 0


def _show(config: RunConfig) -> None:
    """Describe the data set in numbers, a picture and a page."""
    name = config.names.data
    data = federated(config)
    for fact, text in {"data": name, **facts(data)}.items():
        print(f"{fact:<10}  {text}")

    folder = config.results_dir / "data" / name
    path = folder / "labels.png"
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        draw_labels(data, path, name)
    page = folder / "labels.html"
    replace_file(page, _label_page(name, data))
    print(f"written: {path} and {page.name}, where a pointer shows the counts")


def _label_page(name: str, data: FederatedDataset) -> str:
    """Return the page with the label matrix of a data set."""
    counts = label_counts(data)[: _CELLS // data.classes]
    return render_page(
        "labels.html",
        charts=True,
        title=name,
        facts=facts(data),
        chart=label_matrix(counts),
        shown=len(counts),
        clients=data.num_clients,
    )


def _export(config: RunConfig, path: Path) -> None:
    """Write the examples of every client to a file for ``data/partition=indices``."""
    name = config.names.data
    if path.exists():
        raise RequestError(f"{path} exists already; remove it, or name another file")
    data = federated(replace(config, data=replace(config.data, validation=0.0)))
    if data.shares_examples:
        raise RequestError(
            "some examples belong to several clients, which an index file cannot express; "
            "set data.partition.as_published=false"
        )

    with writing(path):
        write(path, name, len(data.y), as_given(data))
    rule = "+data/partition=indices" if config.data.partition is None else "data/partition=indices"
    print(f"written: {path} ({data.num_clients} clients)")
    print(
        f"to use it: fedbench data={name} {rule} "
        f"data.partition.file={shlex.quote(str(path))} data.clients={data.num_clients}"
    )
