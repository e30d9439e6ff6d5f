"""Choice of an executor from the options shared by all commands."""

from fedbench.core.errors import RequestError
from fedbench.core.options import Count, Positive
from fedbench.core.validation import validate
from fedbench.runs.executors.base import Executor
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.executors.ray import RayExecutor

# by NAME in --on NAME[://ADDRESS]: (address, cores per run, GPUs per run) -> executor
CLUSTERS = {"ray": RayExecutor.at}


def make_executor(
    jobs: int | None = None,
    on: str | None = None,
    run_cpus: float | None = None,
    run_gpus: float | None = None,
) -> Executor:
    """Return the executor that a command's options request.

    Args:
        jobs: The option ``--jobs``.
        on: The option ``--on``.
        run_cpus: The option ``--run-cpus``.
        run_gpus: The option ``--run-gpus``.

    Raises:
        RequestError: If an option is invalid or the options contradict one another.
    """
    if jobs is not None:
        validate("--jobs", jobs, Count)
    for name, value in (("--run-cpus", run_cpus), ("--run-gpus", run_gpus)):
        if value is not None:
            validate(name, value, Positive)
    if on is None:
        if run_cpus or run_gpus:
            raise RequestError(
                "--run-cpus and --run-gpus are resources of a run on a Ray cluster; add --on ray"
            )
        return LocalExecutor(jobs)
    if jobs is not None:
        raise RequestError(
            "--jobs cannot be combined with --on: nodes take as many runs as they have cores "
            "and GPUs"
        )

    name, _, address = on.partition("://")
    if name not in CLUSTERS:
        raise RequestError(
            f"--on must be {' or '.join(CLUSTERS)}, perhaps with ://HOST:PORT; got {on}"
        )
    return CLUSTERS[name](address, run_cpus, run_gpus)
