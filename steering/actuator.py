"""Actuators: the four ways in which a dial writes, and what each adds to the stream or bounds in it.

A `strength` of 0 writes nothing: the output is bitwise unchanged.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import NamedTuple

from extract.record import Record
from probes.direction import Direction


class ActuatorRecord(Record):
    """The fields of an actuator in JSON; a strength that is not given is the actuator's default."""

    name: str
    prefixes: tuple[tuple[int, ...], ...] = ()  # of an onset bias
    strength: float = 1.0


@dataclass(frozen=True)
class StreamActuator:
    """A write into the residual stream, by the share `strength`."""

    strength: float = 1.0

    def __post_init__(self) -> None:
        _check(self.strength)


class Affine(StreamActuator):
    """Affine concept editing (arXiv 2411.09003) towards the class mean of the gate, by the share `strength`."""


class Addition(StreamActuator):
    """Activation addition (CAA, arXiv 2312.06681): add (decline) or subtract (permit) `strength` class-mean gaps."""


class Clamp(StreamActuator):
    """As affine, but a projection that is beyond the class mean already is left unchanged."""


@dataclass(frozen=True)
class OnsetBias:
    """Raise or lower the score of declining openings by `strength` nats; needs no direction (arXiv 2412.06748).

    Args:
        prefixes: token sequences that open this kind of declining and nothing else; none is a prefix of another.
    """

    prefixes: tuple[tuple[int, ...], ...]
    strength: float = 20.0  # almost forces or almost forbids an opening

    def __post_init__(self) -> None:
        _check(self.strength)
        if not self.prefixes or not all(self.prefixes):
            raise ValueError("an onset bias needs prefixes of at least one token each")
        for prefix in self.prefixes:
            if any(other != prefix and other[: len(prefix)] == prefix for other in self.prefixes):
                raise ValueError(f"onset prefix {list(prefix)} is a prefix of another one; keep the shorter of the two")


Actuator = StreamActuator | OnsetBias
_BY_NAME: dict[str, type] = {"affine": Affine, "addition": Addition, "clamp": Clamp, "onset_bias": OnsetBias}


class GateEffect(NamedTuple):
    """What a gate +1 (decline), -1 (permit) or 0 (leave) does along a direction, in residual-stream units."""

    added: float = 0.0  # of the unit vector
    rise: float = 0.0  # of the projection above the answering class mean, by declining
    least: float = -math.inf  # projection afterwards, at full strength
    most: float = math.inf


def effect(actuator: StreamActuator, direction: Direction, gate: int) -> GateEffect:
    """Return what a gate does with an actuator along a direction."""
    if not gate:
        return GateEffect()
    gap = direction.gap
    mean, rise = (direction.mean_positive, gap) if gate > 0 else (direction.mean_negative, 0.0)
    match actuator:
        case Addition(strength):
            return GateEffect(added=gate * strength * gap, rise=rise * strength)
        case Clamp():
            return GateEffect(rise=rise, least=mean) if gate > 0 else GateEffect(rise=rise, most=mean)
    return GateEffect(rise=rise, least=mean, most=mean)


def actuator_record(actuator: Actuator) -> ActuatorRecord:
    """Return the JSON record of an actuator."""
    name = next(name for name, kind in _BY_NAME.items() if type(actuator) is kind)
    return ActuatorRecord(name=name, **asdict(actuator))


def actuator_of(record: ActuatorRecord) -> Actuator:
    """Return the actuator of a record."""
    if record.name not in _BY_NAME:
        raise ValueError(f"no such actuator: {record.name!r}; expected one of {', '.join(_BY_NAME)}")
    made: Actuator = _BY_NAME[record.name](**{key: getattr(record, key) for key in record.model_fields_set - {"name"}})
    return made


def _check(strength: float) -> None:
    if not (math.isfinite(strength) and strength >= 0):
        raise ValueError(f"an actuator's strength is {strength:g}; expected a finite number, 0 or above")
