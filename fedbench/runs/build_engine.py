"""Choice of the simulation settings: mode, compiled code, clients per chunk and threads."""

import math

import torch
from torch import Tensor

from fedbench.config.schema import EngineConfig, Mode
from fedbench.core.errors import RequestError
from fedbench.core.user_code import is_own
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.process import LOCAL_WORLD_SIZE, available_cores
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.compiled.dense import DenseKernel, expressible
from fedbench.simulation.compiled.library import kernels
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.memory import free_bytes, keep_memory
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.ranks import ALONE, Ranks
from fedbench.simulation.task import Inputs, Task, example_losses

# size of the parameters processed at once on a CPU: they fit into the cache of a core
_CACHE_BYTES = 6 * 2**20
# share of the free memory for the chunks of all workers; data, uploads and client states take the
# rest
_SHARE = 0.25
_SMALL = 2**16  # number of parameters up to which threads over chunks only wait for each other
# number of parameters from which a dense model trains faster client by client than stacked, on a
# CPU
_LARGE_STACKED = 2**20
# the same for any model on a GPU, where launching kernels then takes little of the time
_LARGE_ON_GPU = 2**22
# number of parameters of a dense model up to which compiled code was measured to be the fastest
_LARGE_COMPILED = 2**22
# examples in the measured batch; the activations of a batch are proportional to its size
_EXAMPLES = 4
# a backward pass and its temporary tensors take about as much memory as the forward pass saved
_PASSES = 2
# model-sized vectors per client: models, gradients, vectors of the method, the upload, the new
# state
_VECTORS = 8


def make_engine(
    task: Task,
    data: FederatedDataset,
    work: LocalWork,
    config: EngineConfig,
    cohort: int,
    cores: int | None = None,
    ranks: Ranks = ALONE,
) -> Engine:
    """Return the engine for a run; docs/performance.md lists the measurements behind the choices.

    Args:
        task: The model and its loss.
        data: The data set, on the task's device.
        work: The local work of a client in one round.
        config: The user's choices. If a value is None, this function chooses it.
        cohort: Number of clients in a round.
        cores: Number of cores that the run may use. If None, all cores available to this process.
        ranks: The processes that share the work; the first process chooses for all.

    Raises:
        RequestError: If compiled code or lanes are requested and cannot be used.
    """
    on_gpu = task.device.type == "cuda"
    if not on_gpu:
        keep_memory()
    kernel = _kernel(task, config.mode)
    mode = config.mode
    if kernel is not None:
        mode = "compiled"
    elif mode in ("auto", "compiled"):
        largest = _LARGE_ON_GPU if on_gpu else _LARGE_STACKED
        # a user's model may not support vectorisation
        own = is_own(type(task.model).forward)
        vectorised = task.traits.dense or (on_gpu and not own)
        mode = "stacked" if vectorised and task.size < largest else "loop"

    stack = _CACHE_BYTES // (task.size * task.dtype.itemsize)
    if not on_gpu:
        stack = max(8, stack)
    elif ranks.world_size == 1:
        stack = data.num_clients
    else:  # this process's share of the clients in a round
        stack = math.ceil(cohort / ranks.world_size)
    alone = mode == "loop" and config.lanes == 1
    size = 1 if alone else min(data.num_clients, stack)
    one_thread = on_gpu or (mode == "stacked" and task.size < _SMALL)
    workers = 1 if one_thread else cores or available_cores()
    size = config.cohort_size or size
    workers = config.workers or workers

    automatic = config.cohort_size is None, config.workers is None
    # compiled code keeps only the activations of one batch of examples
    if kernel is None and any(automatic):
        width = int(work.widths(data.train.counts).max(initial=1))
        needed = client_bytes(task, data, width)
        shares = 2 if on_gpu else LOCAL_WORLD_SIZE
        free = int(_SHARE * free_bytes(task.device)) // shares
        size, workers = _fitting(size, workers, automatic, needed, free)

    # the parts of a cohort and the order of sums depend on these values
    shared_mode, size, workers = ranks.broadcast((mode, size, workers))
    if mode != shared_mode:
        raise RequestError(
            f"engine.mode={mode} is what this machine can do, and the first process has "
            f"{shared_mode}"
        )
    if config.lanes > 1 and not (on_gpu and mode == "loop" and workers == 1):
        raise RequestError(
            f"engine.lanes={config.lanes} needs a CUDA device, engine.mode=loop and "
            f"engine.workers=1; this run has {task.device.type}, {mode} and {workers}"
        )
    oracle = kernel or make_oracle(task, mode, config.lanes)
    captured = task.size < _LARGE_ON_GPU or config.lanes > 1
    # with several threads, the work of the others would be captured too
    if on_gpu and workers == 1 and captured:
        oracle = CapturedOracle(oracle, aligned=config.lanes > 1)
    return Engine(
        oracle,
        mode,
        size,
        workers,
        kernel,
        automatic=config.cohort_size is None,
        ranks=ranks,
    )


def _fitting(
    size: int,
    workers: int,
    automatic: tuple[bool, bool],
    needed: int,
    free: int,
) -> tuple[int, int]:
    """Return the clients per chunk and the threads, halved until all chunks fit into memory.

    Args:
        size: Number of clients per chunk that is fastest, or that the user requested.
        workers: Number of threads that is fastest, or that the user requested.
        automatic: Whether ``size`` and ``workers`` may be changed; the user's values may not.
        needed: Bytes needed for one client's local training.
        free: Bytes available for the chunks.
    """
    automatic_size, automatic_workers = automatic
    while automatic_size and size > 1 and size * workers * needed > free:
        size //= 2
    while automatic_workers and workers > 1 and size * workers * needed > free:
        workers //= 2
    return size, workers


def _kernel(task: Task, mode: Mode) -> DenseKernel | None:
    """Return the compiled code for a task if it is requested or suitable, else None.

    Raises:
        RequestError: If compiled code is requested and not available for the task.
    """
    if mode not in ("auto", "compiled"):
        return None
    reason = "it is for linear models and MLPs in float32 or float64 on a CPU"
    if task.constants:
        reason = "models with frozen parts do not use it"
    if expressible(task):
        library, reason = kernels().library, kernels().source
        if library is not None and (mode == "compiled" or task.size < _LARGE_COMPILED):
            return DenseKernel(library, task)
    parts = task.personal.names or task.local.names or task.averaged.names
    if mode == "compiled" and not parts:  # parts of a model are trained without it
        raise RequestError(f"engine.mode=compiled is not available: {reason}; use engine.mode=auto")
    return None


def client_bytes(task: Task, data: FederatedDataset, width: int) -> int:
    """Return the approximate memory in bytes for one client's local training.

    The estimate covers a fixed number of model-sized vectors and the activations. The activations
    are measured as the tensors that a forward pass over a few examples saves for the backward pass.
    """
    rows = data.train.index[: max(1, min(_EXAMPLES, width))]
    activations = _PASSES * _saved_bytes(task, data, rows) * width // max(1, len(rows))
    vectors = _VECTORS * task.size * task.dtype.itemsize
    return vectors + activations


def _saved_bytes(task: Task, data: FederatedDataset, rows: Tensor) -> int:
    """Return the bytes that a forward pass over the examples ``rows`` saves.

    The parameters are not counted.
    """
    w = torch.zeros(task.size, device=task.device, dtype=task.dtype)
    # by address: views share a storage; storages are kept alive so that no address is reused
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage

    leaves = task.layout.views(w)
    for v in leaves[: task.parameters]:
        v.requires_grad_()
    draws = None
    if task.traits.random:
        draws = torch.zeros((), dtype=torch.int64, device=task.device)
    x = task.images(data.features(rows))
    y = data.labels(rows)
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda nothing: nothing)
    with torch.enable_grad(), hooks:
        example_losses(task.apply(Inputs(leaves, x, draws)), y, 1)
    kept.pop(w.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in kept.values())
