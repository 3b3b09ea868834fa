"""What the dials read and decided while serving, against what they read when they were certified.

As metrics for Prometheus (`GET /metrics`; in vLLM's own server, its own) and as a state for the live page. One read a
conversation, of its first turn, goes to the detectors, since turns of one conversation are not exchangeable.
"""

from __future__ import annotations

import json
import os
import time
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


class DialState(BaseModel):
    """What one dial has read since the server started."""

    evidence: float  # of a shift: it alarms at `alarms_at`
    alarms_at: float
    alarms: list[int]  # after how many conversations each came
    conversations: int
    calibration: list[int]  # certification prompts by probability, in `BINS` equal bins
    read: list[int]  # conversations likewise
    unlike: int  # prompts that are unlike all certification prompts, of `compared`
    compared: int
    answers_alarmed: int
    by_hour: dict[int, dict[Decision, int]]  # of the last `HOURS`, by hours since 1970


class Watch:
    """Counts the reads and gates of served requests. All detectors together keep the run length (docs/shift.md)."""

    def __init__(
        self,
        dials: Sequence[Dial],
        registry: CollectorRegistry,
        say: Callable[[str], None] = lambda line: None,
        log: Path | None = None,
        run_length: float = RUN_LENGTH,
    ) -> None:
        self._say, self._log, self._lock, self._state = say, log, Lock(), dict[Kind, DialState]()
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
        with self._lock:
            return {kind: state.model_copy(deep=True) for kind, state in self._state.items()}

    def prompt(self, messages: Sequence[Mapping[str, str]], readings: Mapping[Kind, Reading]) -> None:
        """Count what was read of a request's prompt, and keep it where there is a log."""
        first, hour = all(message["role"] != "assistant" for message in messages), int(time.time() // 3600)
        with self._lock:
            for kind, read in readings.items():
                state = self._state[kind]
                gate: Decision = "leave" if read.overruled else read.gate
                self._reads.labels(kind).observe(read.probability)
                self._gates.labels(kind, gate).inc()
                state.by_hour = {at: n for at, n in state.by_hour.items() if at > hour - HOURS}
                of_hour = state.by_hour.setdefault(hour, {"decline": 0, "permit": 0, "leave": 0})
                of_hour[gate] += 1
                if read.unlike is not None:
                    state.compared += 1
                    state.unlike += read.unlike <= UNLIKE
                    self._unlike.labels(kind).inc(read.unlike <= UNLIKE)
                if first:
                    state.read[min(int(read.probability * BINS), BINS - 1)] += 1
                    self._see(kind, read, state)
        if self._log is not None and readings:
            kept = {kind: {"probability": one.probability, "gate": one.gate} for kind, one in readings.items()}
            append(self._log, json.dumps({"messages": list(messages), "dials": kept}))

    def _see(self, kind: Kind, read: Reading, state: DialState) -> None:
        state.conversations += 1
        if (detector := self._detectors.get(kind)) is None:
            return
        if detector.see(read.probability):
            self._alarms.labels(kind).inc()
            self._say(
                f"shift: what the {kind} dial reads has changed from its certification prompts "
                f"(conversation {detector.n}); its certificate may not hold: refusal recalibrate"
            )
        state.evidence, state.alarms = detector.evidence, list(detector.alarms)
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
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise UserError(f"the log {path} cannot be written: {error.strerror}") from None
