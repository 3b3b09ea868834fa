"""What the dials read and decided while serving, against what they read when they were certified.

As metrics for Prometheus (`GET /metrics`; in vLLM's own server, its own) and as a state for the live page. One read a
conversation, of its first turn, goes to the detectors, and of equal ones the first alone: turns and repeats are not
exchangeable. A fault here is logged, and never that of the request.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel

from extract.errors import UserError
from probes.statistics.shift import RUN_LENGTH, ShiftDetector
from steering.dial import Dial, Kind
from steering.gates import UNLIKE, Decision, Reading

BINS = 10  # of probabilities
HOURS = 24  # that the page shows
LAST = 10
KNOWN = 100_000  # conversations, of which repeats are known
LOG = logging.getLogger("refusal.serve")


class DialState(BaseModel):
    """What one dial has read since the server started."""

    evidence: float  # of a shift, since the last alarm: it alarms at `alarms_at`
    alarms_at: float
    alarms: list[int]  # after how many conversations each came, the last `LAST`
    alarmed: int = 0  # how many there were
    conversations: int
    calibration: list[int]  # certification prompts by probability, in `BINS` equal bins
    read: list[int]  # conversations likewise
    unlike: int  # prompts that are unlike all certification prompts, of `compared`
    compared: int
    answers_alarmed: int
    by_hour: dict[int, dict[Decision, int]]  # of the last `HOURS`, by hours since 1970


class Watch:
    """Counts the reads and gates of served requests. All detectors together keep the run length (docs/watch.md)."""

    def __init__(
        self,
        dials: Sequence[Dial],
        registry: CollectorRegistry,
        say: Callable[[str], None] = lambda line: None,
        log: Path | None = None,
        run_length: float = RUN_LENGTH,
    ) -> None:
        self._say, self._log, self._lock, self._state = say, log, Lock(), dict[Kind, DialState]()
        self._known, self._said_hour = OrderedDict[int, None](), -1
        compared = {dial.kind: dial.reference for dial in dials if dial.reference is not None}
        self._level = run_length * max(1, len(compared))
        self._detectors = {
            kind: ShiftDetector(reference.probability, self._level) for kind, reference in compared.items()
        }
        edges = [(k + 1) / BINS for k in range(BINS)]
        what = "Probability of declining"
        self._reads = Histogram("refusal_read_probability", what, ["dial"], buckets=edges, registry=registry)
        what = "The same of the certification prompts"
        calibration = Histogram("refusal_calibration_probability", what, ["dial"], buckets=edges, registry=registry)

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"refusal_{name}", what, ["dial", *labels], registry=registry)

        self._gates = counter("gates", "What the dial decided: decline, permit, leave", "gate")
        self._unlike = counter("unlike_prompts", "Prompts unlike all certification prompts")
        self._alarmed = counter("answer_alarms", "Answers with a token that alarmed")
        self._alarms = counter("shift_alarms", "Alarms of a shift of the reads")
        what = "Evidence of a shift of the reads"
        self._evidence = Gauge("refusal_shift_evidence", what, ["dial"], registry=registry)
        Gauge("refusal_shift_alarm_level", "Evidence that alarms", registry=registry).set(self._level)
        for dial in dials:
            known = compared[dial.kind].probability if dial.kind in compared else np.zeros(0)
            for value in known:
                calibration.labels(dial.kind).observe(value)
            self._state[dial.kind] = DialState(
                evidence=0,
                alarms_at=self._level,
                alarms=[],
                conversations=0,
                calibration=np.histogram(known, BINS, (0, 1))[0].tolist(),
                read=[0] * BINS,
                unlike=0,
                compared=0,
                answers_alarmed=0,
                by_hour={},
            )

    def state(self) -> dict[Kind, DialState]:
        since = int(time.time() // 3600) - HOURS
        with self._lock:
            for state in self._state.values():
                state.by_hour = {at: n for at, n in state.by_hour.items() if at > since}
            return {kind: state.model_copy(deep=True) for kind, state in self._state.items()}

    def prompt(self, messages: Sequence[Mapping[str, str]], readings: Mapping[Kind, Reading]) -> None:
        """Count what was read of a request's prompt, and keep it where there is a log."""
        try:
            with self._lock:
                first = self._is_new(messages)
                for kind, read in readings.items():
                    if np.isfinite(read.probability):
                        self._count(kind, read, first=first)
                if self._log is not None and readings:
                    kept = {
                        kind: {"probability": read.probability, "gate": read.gate} for kind, read in readings.items()
                    }
                    append(self._log, json.dumps({"messages": list(messages), "dials": kept}))
        except Exception:
            LOG.exception("a request was not counted")

    def _is_new(self, messages: Sequence[Mapping[str, str]]) -> bool:
        """Return whether this is a first turn that was not asked before."""
        key = hash(json.dumps(list(messages), sort_keys=True))
        if any(message["role"] == "assistant" for message in messages) or key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return True

    def _count(self, kind: Kind, read: Reading, *, first: bool) -> None:
        state, hour = self._state[kind], int(time.time() // 3600)
        gate: Decision = "leave" if read.overruled else read.gate
        self._reads.labels(kind).observe(read.probability)
        self._gates.labels(kind, gate).inc()
        of_hour = state.by_hour.setdefault(hour, {"decline": 0, "permit": 0, "leave": 0})
        of_hour[gate] += 1
        if read.unlike is not None:
            state.compared += 1
            state.unlike += read.unlike <= UNLIKE
            self._unlike.labels(kind).inc(read.unlike <= UNLIKE)
        if first:
            state.read[min(int(read.probability * BINS), BINS - 1)] += 1
            self._see(kind, read, state)

    def _see(self, kind: Kind, read: Reading, state: DialState) -> None:
        state.conversations += 1
        if (detector := self._detectors.get(kind)) is None:
            return
        if detector.see(read.probability):
            self._alarms.labels(kind).inc()
            state.alarmed, state.alarms = state.alarmed + 1, [*state.alarms, detector.n][-LAST:]
            if (hour := int(time.time() // 3600)) != self._said_hour:  # a shift that lasts alarms again and again
                self._said_hour = hour
                self._say(
                    f"shift: what the {kind} dial reads has changed from its certification prompts "
                    f"(conversation {detector.n}); its certificate may not hold: refusal recalibrate"
                )
        state.evidence = detector.evidence
        self._evidence.labels(kind).set(detector.evidence)

    def answer(self, readings: Mapping[Kind, Reading]) -> None:
        """Count the alarms of a whole answer."""
        with self._lock:
            for kind, read in readings.items():
                if read.answer is not None and read.answer.at is not None:
                    self._alarmed.labels(kind).inc()
                    self._state[kind].answers_alarmed += 1


def check_log(path: Path) -> Path:
    """Return the path of a log that can be written; only its owner may read it. UserError: it cannot."""
    append(path)
    return path


def append(path: Path, *lines: str) -> None:
    """Append lines to a file that only its owner may read."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:
            path.chmod(0o600)  # it may have been there
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise UserError(f"the log {path} cannot be written: {error.strerror}") from None
