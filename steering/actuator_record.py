"""An actuator as JSON holds it. Apart from the actuators, so that results are read without loading torch."""

from __future__ import annotations

from extract.record import Record


class ActuatorRecord(Record):
    """The fields of an actuator; a strength that is not given is the actuator's own."""

    name: str
    prefixes: tuple[tuple[int, ...], ...] = ()  # of an onset bias
    strength: float = 1.0
