"""JSON record of an actuator, in a module of its own so that results are read without loading torch."""

from __future__ import annotations

from extract.record import Record


class ActuatorRecord(Record):
    """The fields of an actuator; a strength that is not given is the actuator's default."""

    name: str
    prefixes: tuple[tuple[int, ...], ...] = ()  # of an onset bias
    strength: float = 1.0
