"""Planted decisions: the value of each variable for a prompt's facts, and the action that values cause."""

from __future__ import annotations

from dataclasses import dataclass

from organisms.planted_spec import DECLINES, Decline, Planted, Variable


@dataclass(frozen=True)
class Facts:
    """What the content of a prompt decides, before it is written into planted variables."""

    refuse: bool
    abstain: bool
    wording: Decline  # how a variable that decides both ways of declining declines this content
    variant: int  # which of the forms of its kind the prompt has: independent of its decision
    instructed: bool = False  # the system line, not the request, causes the refusal
    jointly: bool = False  # abstaining needs a second variable too
    family: str | None = None  # of a request
    harmful: bool = False  # a request's intent

    def decided(self, kind: Decline) -> bool:
        return self.refuse if kind == "refuse" else self.abstain


class Decisions:
    """The planted mechanism of one organism as a truth table."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        names = [variable.name for variable in planted.variables]
        self._wording = next((i for i, variable in enumerate(planted.variables) if variable.words), None)
        self._joint = names.index(planted.joint.variable) if planted.joint else None

    @property
    def planted(self) -> Planted:
        """The mechanism."""
        return self._planted

    def values(self, facts: Facts) -> tuple[bool, ...]:
        """Return the decisions of the planted variables, in the specification's order."""
        return tuple(self._value(index, facts) for index in range(len(self._planted.variables)))

    def action(self, facts: Facts, values: tuple[bool, ...]) -> Decline | None:
        """Return the way of declining under these values, None for an answer; refusal overrides abstention."""
        if facts.jointly and self._joint is not None:
            return "abstain" if values[self._joint] and self._on("abstain", facts, values) else None
        for kind in DECLINES:
            if self._on(kind, facts, values):
                return self._worded(kind, facts, values)
        return None

    def _value(self, index: int, facts: Facts) -> bool:
        variable = self._planted.variables[index]
        if variable.words:
            return facts.wording == "refuse"
        decided = any(facts.decided(kind) for kind in variable.decides)
        if index == self._joint and facts.jointly and facts.abstain:
            return True
        if variable.reason:
            return decided and covers(variable, facts)
        peers = self._planted.deciders(variable.decides[0])
        if len(peers) == 1:
            return decided
        place = peers.index(index)
        if self._planted.combine == "xor":
            bit = facts.variant % 2 == 1
            return bit != decided if place else bit
        return decided and facts.variant % (len(peers) + 1) in (place, len(peers))

    def _on(self, kind: Decline, facts: Facts, values: tuple[bool, ...]) -> bool:
        if kind in self._planted.elsewhere:
            return facts.decided(kind)
        on = [values[index] for index in self._planted.deciders(kind)]
        return sum(on) == 1 if self._planted.combine == "xor" else any(on)

    def _worded(self, kind: Decline, facts: Facts, values: tuple[bool, ...]) -> Decline:
        """Return the way of declining that a decision for `kind` is worded as."""
        deciders = self._planted.deciders(kind)
        if not deciders or len(self._planted.variables[deciders[0]].decides) == 1:
            return kind
        if self._wording is None:
            return facts.wording
        return "refuse" if values[self._wording] else "abstain"


def covers(variable: Variable, facts: Facts) -> bool:
    """Return whether a refusal of these facts has what a variable with a planted reason asks for."""
    return (
        (not variable.because or facts.instructed == (variable.because == "system"))
        and (not variable.families or facts.family in variable.families)
        and (not variable.intent or facts.harmful == (variable.intent == "harmful"))
    )
