"""The form of a run on a GPU: resumed, pinned, kept from an earlier measurement, or measured on some of its clients."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor

from fedbench.config.schema import EngineConfig
from fedbench.core.algorithm import Algorithm, Sampler, Stage, Step
from fedbench.core.errors import RequestError
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.candidates import candidates, on_more_streams
from fedbench.runs.choice_cache import ChoiceCache
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.cohort import Cohort
from fedbench.simulation.engine import Engine
from fedbench.simulation.forms import Form
from fedbench.simulation.memory import OutOfMemory, allocation_failed, free_device_bytes, peak_device_bytes
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.task import Task

_SECONDS = 1.5  # for all candidates together; a step of each is timed however long it takes
_CLIENTS, _STEPS = 32, 4  # clients and steps of each that a candidate is timed on, at most
_PASSES = 20  # over these, at most
_FEW = 4  # clients of the first chunk, whose memory is measured
_SLOW = 3  # times the best so far: a form whose first pass takes longer is not timed again
_SHARE = 0.25  # of the free memory for the chunks of all streams; uploads and client states take the rest

ChosenBy = Literal["measurement", "rule", "cache", "pinned", "resumed"]


@dataclass(frozen=True)
class Choice:
    """A form that was chosen.

    Attributes:
        form: The form.
        chosen_by: What decided.
        measured: Milliseconds per client-step of each candidate that was timed.
        left_out: The reason why a candidate was not timed, for each that was not.
    """

    form: Form
    chosen_by: ChosenBy
    measured: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, kept: Mapping[str, Any], chosen_by: ChosenBy) -> Choice:
        """Return a choice that was kept as ``kept()`` gave it.

        Raises:
            ValueError: If it is none.
        """
        try:
            form = Form(**kept["form"])
            return cls(form, chosen_by, dict(kept["measured"]), dict(kept["left_out"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a choice of a form: {error}") from error

    def kept(self) -> dict[str, Any]:
        """Return what ``read`` reads."""
        return {"form": asdict(self.form), "measured": dict(self.measured), "left_out": dict(self.left_out)}

    def facts(self) -> dict[str, Any]:
        """Return what ``meta.json`` records in its section ``engine``."""
        form = self.form
        facts: dict[str, Any] = {"mode": form.mode, "graphs": form.graphs, "channels_last": form.channels_last}
        if self.measured:
            facts["measured"] = {name: round(ms, 5) for name, ms in self.measured.items()}
        if self.left_out:
            facts["left_out"] = dict(self.left_out)
        return {**facts, "chosen_by": self.chosen_by}


class Sample:
    """Some clients of the first round of a run, with the local work of its method.

    The stage with the most rounds stands for the run in what is timed. What a method wants measured before the local
    work is not measured: the time of a step does not depend on its value.

    Args:
        stages: The stages of the method.
        task: The model and its loss.
        data: The data set, on the task's device.
        work: The local work of a client in a round.
        w: The initial model [P].
        sampler: Draws the cohorts of stages that have no sampler of their own.
        seed: Random seed of the run.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        task: Task,
        data: FederatedDataset,
        work: LocalWork,
        w: Tensor,
        sampler: Sampler,
        seed: int,
    ) -> None:
        stage = max(stages, key=lambda s: s.rounds)
        self._stages = stages
        self.algo, self.task, self.data, self.work, self.w, self.seed = stage.algorithm, task, data, work, w, seed
        counts = data.train.counts
        drawn = (stage.sampler or sampler)(0, counts, seed)
        self.cohort_size = len(drawn)
        some = np.linspace(0, len(drawn) - 1, min(_CLIENTS, len(drawn))).round().astype(np.int64)
        self.ids = drawn[some]
        self.tau = work.tau(self.ids, counts[self.ids], seed, 0)
        self.width = int(work.widths(counts[self.ids]).max())

    def steps(self, clients: int, steps: int) -> int:
        """Return the number of client-steps that ``train`` takes."""
        return int(np.minimum(self.tau[:clients], steps).sum())

    @torch.no_grad()
    def on(self, engine: Engine, clients: int, steps: int) -> Callable[[], None]:
        """Return a function that carries out local steps and discards the outcome; its first call makes the plans.

        Args:
            engine: How they are carried out.
            clients: Number of clients.
            steps: Number of steps of each, at most.
        """
        return self._local_phases(engine, self.algo, self.algo, clients, steps)

    @torch.no_grad()
    def step_others(self, engine: Engine, clients: int) -> None:
        """Take a local step of every other algorithm of the run, so that what a form cannot carry out is known now.

        Args:
            engine: How it is carried out.
            clients: Number of clients.
        """
        seen: list[Step] = [self.algo.step]
        for owner in (stage.algorithm for stage in self._stages):
            for algo in (owner, owner.setup, owner.personal):
                if algo is not None and not any(algo.step is step for step in seen):
                    seen.append(algo.step)
                    self._local_phases(engine, owner, algo, clients, 1)()

    def _local_phases(
        self, engine: Engine, owner: Algorithm, algo: Algorithm, clients: int, steps: int
    ) -> Callable[[], None]:
        """Return a function that carries out local phases of ``algo``: ``owner``, or its setup or personal phase."""
        ids, setup = self.ids[:clients], algo is owner.setup
        cohort = Cohort(ids, np.minimum(self.tau[:clients], steps), self.data, self.work, engine)
        sender = algo if setup else owner
        server = owner.server_init(self.w, self.data.num_clients)
        msg = sender.broadcast(server)
        first = {} if setup else owner.client_init(self.w)
        states = {k: v.expand(len(ids), *v.shape).clone() for k, v in first.items()}
        probe = _stand_in(algo, self.w, len(ids)) if algo is owner else {}
        info = cohort.info(sender.weights, probe, self.seed, 0)
        if algo.instruct is not None:
            info = replace(info, probe=probe | algo.instruct(server, info))
        return lambda: cohort.local_phases(algo, msg, states, info, self.seed)


def _stand_in(algo: Algorithm, w: Tensor, count: int) -> dict[str, Tensor]:
    """Return numbers in the place of what a method wants measured at the broadcast model."""
    ones = torch.ones(count, dtype=torch.float64, device=w.device)
    found: dict[str, Tensor] = {name: ones for name in algo.needs & {"loss", "accuracy", "loss_init"}}  # noqa: C420
    return {**found, "grad": w.expand(count, -1)} if "grad" in algo.needs else found


class FormChoice:
    """The choice of a form that a run on a GPU has to make when it starts.

    Args:
        sample: Some of the run's clients.
        config: The choices of the user.
        engine: The engine of the run, which takes the form.
        case: What the choice depends on besides the sample, for the cache.
        clock: Returns seconds.
    """

    def __init__(
        self,
        sample: Sample,
        config: EngineConfig,
        engine: Engine,
        case: Mapping[str, Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.sample, self.config, self.engine, self.case, self.clock = sample, config, engine, case, clock
        self.task, self.device = sample.task, sample.task.device
        self.forms = candidates(sample.task, sample.data, config)
        self._sizes: dict[Form, int] = {}

    def settle(self, saved: Mapping[str, Any] | None) -> Choice:
        """Choose a form and let the engine take it; a run that was interrupted goes on in the form that it began with.

        Args:
            saved: What the checkpoint of an interrupted run has kept of its choice, or None.

        Raises:
            OutOfMemory: If no candidate has enough memory.
            RuntimeError: The error of the plainest candidate, if none can be carried out.
            RequestError: Likewise, if local steps cannot be captured and the user has asked for graphs.
        """
        resumed = None if saved is None else self._allowed(saved, "resumed")
        if resumed is not None:  # in chunks of the size that the engine has read from the checkpoint
            self._take(resumed.form, None)
            return resumed
        choice = Choice(self.forms[0], "pinned") if self._all_pinned() else self._kept_or_measured()
        try:
            size = self._clients_at_once(choice.form)
        except (MemoryError, RuntimeError) as error:
            if not allocation_failed(error):
                raise
            raise _too_large(error) from error
        self._take(choice.form, size)
        self._clear()
        torch.cuda.reset_peak_memory_stats(self.device)  # the record of the run has the peak of its rounds
        return choice

    def _all_pinned(self) -> bool:
        return len(self.forms) == 1 and not on_more_streams(self.forms[0], self.config)

    def _allowed(self, kept: Mapping[str, Any], chosen_by: ChosenBy) -> Choice | None:
        """Return a choice that was kept, if it is one of today's candidates."""
        try:
            choice = Choice.read(kept, chosen_by)
        except ValueError:
            return None
        known = [f for form in self.forms for f in (form, *on_more_streams(form, self.config))]
        return choice if choice.form in known else None

    def _kept_or_measured(self) -> Choice:
        cache = ChoiceCache(self._full_case())
        with cache.held(str(torch.cuda.get_device_properties(self.device).uuid)):
            kept = cache.read()
            choice = None if kept is None else self._allowed(kept, "cache")
            if choice is None or not self._fits(choice.form):
                choice = self._measured()
                cache.write(choice.kept())
        return choice

    def _fits(self, form: Form) -> bool:
        """Return whether there is memory for a form now, as there was when it was measured."""
        try:
            self._clients_at_once(form)
        except (MemoryError, RuntimeError) as error:
            if not allocation_failed(error):
                raise
            return False
        return True

    def _full_case(self) -> dict[str, Any]:
        """Return everything that the choice depends on."""
        sample, task = self.sample, self.task
        return {
            **self.case,
            "device": torch.cuda.get_device_name(self.device),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "model": str(task.model),
            "parameters": [[name, *shape] for name, shape in zip(task.layout.names, task.layout.shapes, strict=True)],
            "examples": list(sample.data.shape),
            "batch": sample.width,
            "steps": [type(sample.algo.step).__name__, sample.work.random, sample.work.augment is not None],
            "precision": self.config.precision,
            "clients": len(sample.ids),
            "cohort_size": self.config.cohort_size,
            "candidates": [str(form) for form in self.forms],
        }

    def _measured(self) -> Choice:
        """Time all candidates, then the fastest that trains one client at a time on more streams."""
        times: dict[Form, float] = {}
        left_out: dict[Form, Exception] = {}
        share = _SECONDS / (len(self.forms) + len(on_more_streams(Form("loop"), self.config)))
        self._time(self.forms, share, times, left_out)  # the plainest first, whose error is raised if all end with one
        loops = [form for form in times if form.mode == "loop"]
        if loops:
            self._time(on_more_streams(min(loops, key=times.__getitem__), self.config), share, times, left_out)
        if not times:
            self._refuse(left_out)
        best = min(times, key=times.__getitem__)
        reasons = {str(form): _reason(error) for form, error in left_out.items()}
        return Choice(best, "measurement", {str(form): 1000 * s for form, s in times.items()}, reasons)

    def _time(
        self, forms: Sequence[Form], share: float, times: dict[Form, float], left_out: dict[Form, Exception]
    ) -> None:
        """Add the seconds per client-step of each form to ``times``, or the error that it ends with to ``left_out``."""
        for form in forms:
            try:
                times[form] = self._seconds(form, share, min(times.values(), default=math.inf))
            except (MemoryError, RuntimeError, RequestError) as error:  # memory, a capture, or what vmap cannot do
                short = allocation_failed(error)
                if isinstance(error, torch.AcceleratorError) and not short:
                    raise  # the device is of no use to this process any more
                if not short and not isinstance(error, RequestError):
                    print(f"fedbench: the form ({form}) is not tried further: {_reason(error)}", file=sys.stderr)
                if short or form is not self.forms[0]:
                    _let_go(error)
                left_out[form] = error
            self._clear()  # the next candidate starts from the same memory, without this one's graphs

    def _clear(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def _refuse(self, left_out: Mapping[Form, Exception]) -> NoReturn:
        """Raise the error of the plainest candidate."""
        error = next(iter(left_out.values()))
        if all(map(allocation_failed, left_out.values())):
            raise _too_large(error) from error
        raise error

    def _seconds(self, form: Form, share: float, best: float) -> float:
        """Return the seconds per client-step of a form, where those of another are ``best``.

        About ``share`` seconds are spent on the timing, or one pass.
        """
        sample, size = self.sample, self._clients_at_once(form)
        clients = min(len(sample.ids), max(size, 2) * form.workers)
        engine = self._engine(form, size)
        try:
            step, steps = (sample.on(engine, clients, n) for n in (1, _STEPS))
            step()  # kernels are chosen, memory is allocated, graphs are captured
            once = self._timed(step)
            each = once / sample.steps(clients, 1)
            if each > _SLOW * best:
                return each
            sample.step_others(engine, clients)
            if once * _STEPS > share:
                return each
            steps()  # batches of other widths
            spent, passes = 0.0, 0
            while passes == 0 or (passes < _PASSES and spent < share - once * _STEPS):
                spent += self._timed(steps)
                passes += 1
            return spent / passes / sample.steps(clients, _STEPS)
        finally:
            engine.close()

    def _timed(self, work: Callable[[], None]) -> float:
        torch.cuda.synchronize(self.device)
        start = self.clock()
        work()
        torch.cuda.synchronize(self.device)
        return self.clock() - start

    def _clients_at_once(self, form: Form) -> int:
        """Return the number of clients of a chunk: the user's, or as many as fit by the measured peak of a small one.

        A number below that of all clients is a power of two, so that it hardly varies with the free memory.
        """
        if self.config.cohort_size is not None or form.mode == "loop":
            return self.config.cohort_size or 1
        if form not in self._sizes:
            room = int(_SHARE * free_device_bytes(self.device)) // form.workers
            fitting, everyone = room // self._bytes_each(form), self.sample.data.num_clients
            self._sizes[form] = everyone if fitting >= everyone else 1 << max(0, fitting.bit_length() - 1)
        return self._sizes[form]

    def _bytes_each(self, form: Form) -> int:
        """Return the bytes per client of the first step of a small chunk, with what the graphs of a step hold."""
        count = min(_FEW, len(self.sample.ids))
        while True:
            engine = self._engine(form, count)
            try:
                peak = peak_device_bytes(self.device, self.sample.on(engine, count, 1))
                return max(1, peak // count)
            except (MemoryError, RuntimeError) as error:
                if count == 1 or not allocation_failed(error):
                    raise
            finally:
                engine.close()
            self._clear()
            count //= 2

    def _engine(self, form: Form, size: int) -> Engine:
        """Return an engine of its own for a trial, on whose captures no later one depends."""
        self.task.use_layout(form.channels_last)
        oracle = make_oracle(self.task, form.mode)
        return Engine(oracle, form.mode, size, form.workers, graphs=form.graphs, device=self.device)

    def _take(self, form: Form, size: int | None) -> None:
        """Let the engine of the run work in a form, with chunks of ``size`` clients or as it is."""
        self.task.use_layout(form.channels_last)
        self.engine.take_form(form, make_oracle(self.task, form.mode), size)


def _too_large(error: Exception) -> OutOfMemory:
    return OutOfMemory(
        "the local phase of one client does not fit into memory; use a smaller local.batch_size or model "
        f"({_reason(error)})"
    )


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _let_go(error: BaseException) -> None:
    """Let go of the frames of an error and of those that led to it, which hold tensors."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        e = pending.pop()
        if e is not None and id(e) not in seen:
            seen.add(id(e))
            e.__traceback__ = None
            pending += [e.__cause__, e.__context__]
