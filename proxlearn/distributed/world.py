"""The world of a run: the ranks (processes) that train one cloud together, their exchanges, and lost ranks.

All messages are sent through torch.distributed with the backend gloo. A rank that ends closes its connections, and a
rank that hangs exceeds the timeout of the group; in both cases, an exchange fails on the other ranks. They then check
through the store of the group which ranks still answer; a rank that does not answer is lost, and the error names it.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from proxlearn.distributed.rank_environment import Launch
from proxlearn.errors import SAME_COMMAND, ProxlearnError, RunError
from proxlearn.terminal.streams import Notices

ROLL_CALL_SECONDS = (3.0, 20.0)
"""Smallest and largest number of seconds that a rank waits for the answers of the other ranks after a failed exchange.

A rank that is computing answers only at its next exchange. The waiting time is therefore twice the longest computation
between two exchanges, within these limits. torchrun ends all ranks 30 seconds after the first one has ended.
"""
POLL_SECONDS = 0.05
STARTED = "started"
"""Event for which the other ranks wait while rank 0 prepares the run."""
CONTINUES = f"{SAME_COMMAND} continues from the newest checkpoint"
T = TypeVar("T")


class RankLost(RunError):
    """Raised if another rank ends, fails or does not answer; ``reporter`` is the rank that informs the user."""

    def __init__(self, problem: str, reporter: int) -> None:
        super().__init__(problem, CONTINUES)
        self.reporter = reporter


class SharedError(ProxlearnError):
    """An error of one rank that all ranks have received; rank 0 informs the user."""

    def __init__(self, problem: str, remedy: str, exit_code: int = 1) -> None:
        super().__init__(problem, remedy)
        self.exit_code = exit_code


class Stop(Protocol):
    """The interface of the object that records the stop requests (signals) of this process."""

    signal: int | None

    def interrupt(self, number: int) -> None: ...


class World:
    """The ranks of a run and their exchanges; implements the protocol ``Exchange`` of core/sharding.py.

    The constructor returns when all ranks have joined.
    """

    def __init__(self, launch: Launch, timeout: float) -> None:
        self.rank, self.size = launch.rank, launch.size
        self.stop: Stop | None = None
        """The stop requests of this process; a request ends the step on all ranks."""
        self.bytes_sent = 0
        """Number of bytes that this rank has sent in exchanges of arrays."""
        self.is_training = False
        """Whether the steps have begun.

        Before the first step, an error is sent to the other ranks in an exchange. A later error is reported in the
        store.
        """
        # Only rank 0 prints messages.
        Notices.silent = self.rank > 0
        self._idle_since, self._longest = time.monotonic(), 0.0
        limit = timedelta(seconds=timeout)
        values = {"RANK": self.rank, "WORLD_SIZE": self.size, "MASTER_ADDR": launch.address, "MASTER_PORT": launch.port}
        os.environ |= {key: str(value) for key, value in values.items()}
        try:
            store, _, _ = next(rendezvous("env://", timeout=limit))
            # torchrun may keep its store when it restarts the ranks; the entries of the earlier ranks are ignored.
            self._store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            group_store = PrefixStore("group", self._store)
            dist.init_process_group("gloo", store=group_store, rank=self.rank, world_size=self.size, timeout=limit)
        except (RuntimeError, ValueError, OSError) as error:
            problem = f"rank {self.rank} did not find all {self.size} ranks at {launch.address}:{launch.port}"
            raise RunError(
                problem, "start all ranks, and check that all machines can connect to this address"
            ) from error
        self.local_size = self.gather(platform.node()).count(platform.node())
        """Number of ranks on this machine."""

    def all_gather(self, part: np.ndarray) -> np.ndarray:
        sent = torch.from_numpy(np.ascontiguousarray(part))
        received = torch.empty((self.size, *part.shape), dtype=sent.dtype)
        # The ranks form a ring: every rank sends its own part and forwards the parts of all ranks except the next one.
        self.bytes_sent += part.nbytes * (self.size - 1)
        self._exchange(lambda: dist.all_gather(list(received.unbind(0)), sent))
        return received.numpy()

    def all_to_all(self, parts: np.ndarray) -> np.ndarray:
        sent = torch.from_numpy(np.ascontiguousarray(parts))
        received = torch.empty_like(sent)
        self.bytes_sent += parts.nbytes * (self.size - 1) // self.size
        self._exchange(lambda: dist.all_to_all_single(received, sent))
        return received.numpy()

    def stop_request(self) -> int:
        return 0 if self.stop is None or self.stop.signal is None else self.stop.signal

    def interrupt(self, request: int) -> None:
        assert self.stop is not None, "a stop request was reported without a Stop object"
        self.stop.interrupt(request)

    def any_stop_request(self) -> int:
        """Return the number of a signal that any rank has received, or 0 if no rank has received a signal.

        All ranks call this method between two steps.
        """
        request = int(self.all_gather(np.array([self.stop_request()])).max())
        if request and self.stop is not None:
            self.stop.signal = request
        return request

    def gather(self, value: T | None = None, error: ProxlearnError | None = None) -> list[T]:
        """Return the values of all ranks in order; if a rank passes an error, raise a SharedError on all ranks."""
        messages: list[Any] = [None] * self.size
        failure = None if error is None else (error.problem, error.remedy, error.exit_code)
        self._exchange(lambda: dist.all_gather_object(messages, (value, failure)))
        for rank, (_, found) in enumerate(messages):
            if found is not None:
                problem, remedy, exit_code = found
                # Rank 0 informs the user, and its own errors take precedence.
                raise SharedError(problem if rank == 0 else f"rank {rank}: {problem}", remedy, exit_code)
        return [value for value, _ in messages]

    def share(self, value: T | None = None) -> T:
        """Send the value of rank 0 to all ranks, and return it."""
        box: list[Any] = [value]
        self._exchange(lambda: dist.broadcast_object_list(box, 0))
        shared: T = box[0]
        return shared

    def announce(self, event: str) -> None:
        """Notify the ranks that wait for ``event``."""
        self._store.set(event, "")

    def await_event(self, event: str) -> None:
        """Wait for ``event`` without a time limit, because rank 0 may take hours to select the settings of the run."""
        while not self._in_store(lambda: self._store.check([event])):
            if self.stop_request():
                self.interrupt(self.stop_request())
            time.sleep(10 * POLL_SECONDS)

    def settle(self, error: ProxlearnError) -> ProxlearnError:
        """Send the error of this rank to the other ranks, and return the error that this rank should raise.

        Exactly one rank prints the error; the other ranks are silent.
        """
        if not self.is_training and not isinstance(error, SharedError | RankLost):
            try:
                self.announce(STARTED)
                self.gather(error=error)
            except ProxlearnError as common:
                error = common
        if isinstance(error, RankLost):
            Notices.silent = self.rank != error.reporter
        elif not isinstance(error, SharedError):
            self.report_failure(error)
        return error

    def report_failure(self, error: BaseException) -> None:
        """Report to the other ranks why this rank ends; do nothing if they cannot be reached."""
        text = error.problem if isinstance(error, ProxlearnError) else str(error)
        try:
            self._store.set(f"failed-{self.rank}", text.partition("\n")[0][:1000] or type(error).__name__)
        except RuntimeError:
            return

    def _exchange(self, operation: Callable[[], object]) -> None:
        self._longest = max(self._longest, time.monotonic() - self._idle_since)
        try:
            operation()
        except RuntimeError as error:
            raise self._call_the_roll() from error
        self._idle_since = time.monotonic()

    def _call_the_roll(self) -> RankLost:
        """Return an error that names the ranks that do not answer; see ``ROLL_CALL_SECONDS``."""
        least, most = ROLL_CALL_SECONDS
        seconds = min(max(least, 2 * self._longest), most)
        lost: list[RankLost] = []
        # The calls are made in a thread: under srun, the store is in rank 0, and if rank 0 hangs, they do not return.
        roll = threading.Thread(target=lambda: lost.append(self._find_lost(seconds)), daemon=True)
        roll.start()
        roll.join(seconds + ROLL_CALL_SECONDS[0])
        return lost[0] if lost else RankLost("rank 0 ended or did not answer", 1)

    def _find_lost(self, seconds: float) -> RankLost:
        others = [rank for rank in range(self.size) if rank != self.rank]
        end = time.monotonic() + seconds
        try:
            self._store.set(f"present-{self.rank}", "")
            while time.monotonic() < end:
                for rank in others:
                    if self._store.check([f"failed-{rank}"]):
                        reason = self._store.get(f"failed-{rank}").decode("utf-8", "replace")
                        return RankLost(f"rank {rank} failed: {reason}", 0)
                if self._store.check([f"present-{rank}" for rank in others]):
                    return RankLost("the connection between the ranks was lost", 0)
                time.sleep(POLL_SECONDS)
            lost = [rank for rank in others if not self._store.check([f"present-{rank}"])]
        except RuntimeError:
            # Under srun, the store is in rank 0.
            lost = [0]
        names = f"rank {lost[0]}" if len(lost) == 1 else f"ranks {', '.join(map(str, lost))}"
        reporter = min(rank for rank in range(self.size) if rank not in lost)
        return RankLost(f"{names} ended or did not answer", reporter)

    def _in_store(self, operation: Callable[[], T]) -> T:
        try:
            return operation()
        except RuntimeError as error:
            raise RankLost("rank 0 ended or did not answer", 1) from error
