"""Spreading tasks over processes so that one that dies takes nothing with it but its own task."""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any


@dataclass(frozen=True)
class Failure:
    """Stands for the outcome of a task that has none.

    Attributes:
        cause: What happened, in one line.
    """

    cause: str


def attempt(function: Callable[[Any], Any], task: Any) -> Any:
    """Outcome of a task, a :class:`Failure` if the function raises."""
    try:
        return function(task)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")


def spread(function: Callable[[Any], Any], tasks: Sequence[Any], workers: int) -> Iterator[tuple[int, Any]]:
    """Do tasks in a number of processes, each of which does one task after another.

    Processes are started afresh (``spawn``), so function and tasks must be importable and picklable, and a
    script that calls this needs the usual ``if __name__ == "__main__"``.

    Args:
        function: What to do with a task.
        tasks: The tasks.
        workers: Number of processes.

    Yields:
        Number and outcome of each task as it ends; a :class:`Failure` if it raised or its process died.
    """
    waiting, idle = deque(enumerate(tasks)), list[_Worker]()
    busy: dict[Connection, _Worker] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _Worker(function)
                worker.give(*waiting.popleft())
                busy[worker.connection] = worker
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker = busy.pop(connection)
                outcome = worker.take()
                if worker.process.is_alive():
                    idle.append(worker)
                yield worker.number, outcome
    finally:
        for worker in [*idle, *busy.values()]:
            worker.stop()


class _Worker:
    """One process and the line to it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, function), daemon=True)
        self.process.start()
        theirs.close()  # so that the line breaks when the process dies
        self.number = -1

    def give(self, number: int, task: Any) -> None:
        self.number = number
        with contextlib.suppress(BrokenPipeError):  # a dead process shows when its answer is taken
            self.connection.send(task)

    def take(self) -> Any:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            self.connection.close()
            return Failure(f"its process ended with exit code {self.process.exitcode}")

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    # An interrupt from the keyboard reaches all processes; the first one decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        except Exception as error:  # what was sent cannot be imported here
            connection.send(Failure(f"{type(error).__name__}: {error}"))
        else:
            connection.send(attempt(function, task))
