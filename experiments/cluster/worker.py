"""A worker: one process with one loaded model, which extracts shards and does parts of tasks. Ray makes it an actor."""

from __future__ import annotations

import os
import platform
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.cluster.workers import ProcessFacts, WorkerError
from experiments.responses.loaded_run import LoadedRun, RunDescription, described
from experiments.responses.setting import Task
from experiments.run.config import RunConfig
from extract.errors import UserError, in_one_line
from extract.extraction import Extraction
from extract.progress import Reporter


@dataclass(frozen=True)
class WorkerFacts(ProcessFacts):
    """What a worker with a model is."""

    threads: int
    description: RunDescription  # for the manifest
    remarks: tuple[str, ...]  # on the chat template, for the user


@dataclass(frozen=True)
class StorePlan:
    """What is left to do of a store."""

    n_prompts: int
    rows: Mapping[int, range]  # the prompts of each shard that is missing


class Worker:
    """One process's share of a run. Two threads may call it: while one shard is written, another is captured."""

    def __init__(self, config: str, directory: str, cwd: str, local_disk: bool) -> None:
        """Keep the run's configuration as JSON, and the command's working directory; `facts` is asked for first."""
        self._config, self._directory, self._cwd, self._local_disk = config, Path(directory), cwd, local_disk
        self._log = self._directory / "logs" / f"worker-{socket.gethostname()}-{os.getpid()}.log"
        self._closing, self._remarks = ExitStack(), list[str]()
        self._one, self._work = threading.RLock(), dict[str, Callable[[Any], Any]]()

    def facts(self) -> WorkerFacts:
        """Load the model, and say what it is."""
        from torch import get_num_threads

        self._make_log()
        with self._reporting(), self._one:
            description, model = described(self._loaded), self._loaded.model
            remarks = tuple(self._remarks) if self._loaded.rendered else ()
            same = {**description.versions, "python": platform.python_version()}
            same |= {"weights": model.fingerprint(), "prompts": description.prompts}
            same |= {"dtype": description.dtype, "kind of device": model.device.type}
            return WorkerFacts(socket.gethostname(), os.getpid(), same, get_num_threads(), description, remarks)

    def plan(self) -> StorePlan:
        with self._reporting(), self._one:
            files, n = self._extraction.files, len(self._loaded.reading.prompts)
            return StorePlan(n, {shard: files.rows(shard) for shard in files.missing()})

    def shard(self, number: int, said: Sequence[Sequence[int]] | None = None) -> None:
        with self._reporting(), self._one:
            extraction = self._extraction
        with self._reporting(f"prompts of shard {number}: {self._ids(extraction.files.rows(number))}"):
            extraction.add(number, said)

    def finish(self) -> None:
        with self._reporting(), self._one:
            self._extraction.finish()

    def close(self) -> list[str]:
        """Close the store; return what there was to say."""
        with self._reporting(), self._one:
            self._closing.close()
            self.__dict__.pop("_extraction", None)
            return self._remarks

    def do(self, name: str, task: Task[Any, Any], part: Any) -> Any:
        """Do one part of a task, which is prepared at its first part; its name distinguishes it from others."""
        with self._reporting(), self._one:
            if name not in self._work:
                self._work = {name: task.prepare(self._loaded)}  # earlier tasks are done
            return self._work[name](part)

    def _make_log(self) -> None:
        node = socket.gethostname()
        if not self._local_disk and not self._directory.is_dir():
            raise WorkerError(
                f"{node}: there is no {self._directory}; put the run directory (--out) on a file system "
                "that all nodes share, or see: refusal extract --local-disks"
            )
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._note(f"worker {os.getpid()} on {node} starts")
        except OSError as error:
            raise WorkerError(f"{node}: cannot write {self._log}: {error.strerror}") from None

    @cached_property
    def _loaded(self) -> LoadedRun:
        os.chdir(self._cwd)
        reporter = Reporter(quiet=True, log=self._note)
        return LoadedRun(RunConfig.model_validate_json(self._config), self._directory, reporter)

    @cached_property
    def _extraction(self) -> Extraction:
        loaded = self._loaded.reading
        extraction = Extraction(
            loaded.model,
            loaded.prompts,
            loaded.rendered,
            loaded.file("activations.h5"),
            loaded.config.extract,
            locked=True,
            kept=loaded.kept,
            say=loaded.reporter.say,
        )
        return self._closing.enter_context(extraction)

    def _ids(self, rows: range) -> str:
        first, last = (self._loaded.reading.prompts[row].id for row in (rows.start, rows.stop - 1))
        return f"{first!r} to {last!r}" if first != last else repr(first)

    @contextmanager
    def _reporting(self, about: str = "") -> Iterator[None]:
        """Raise any error as one line with the node and the log, which gets the traceback."""
        try:
            yield
        except Exception as error:
            self._note(traceback.format_exc())
            line = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {in_one_line(error)}"
            what = f" ({about})" if about else ""
            raise WorkerError(f"worker on {socket.gethostname()}: {line}{what}; log: {self._log}") from None

    def _note(self, line: str) -> None:
        if line.startswith("Note: "):
            self._remarks.append(line.removeprefix("Note: "))
        with self._log.open("a", encoding="utf-8") as log:
            log.write(line.rstrip() + "\n")
