"""Typed results: the line and what it elicits (stages/elicit.json), effects under it (stages/elicited.json)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.probing.results import WriteRecord
from experiments.run.outcomes import Share
from extract.record import Record
from probes.statistics.intervals import NO_DIFFERENCE, Estimate


@dataclass(frozen=True, kw_only=True)
class ActionShare(Share):
    """The share of the prompts of one label that are acted on in some way under one condition."""

    condition: str  # plain, line or control
    label: str  # uncertain, twin or harmful
    action: str  # refuse, abstain or answer


class TriedLine(Record):
    """What a line elicits on training prompts."""

    line: str
    tokens: int
    uncertain: Estimate  # abstained from
    twins: Estimate
    difference: Estimate  # over the groups that have both


class Elicitation(Record):
    """stages/elicit.json: the line, its control, and what is elicited on tested prompts."""

    needed: bool = True  # False: the plain model abstains by itself, or it was not asked
    reason: str = ""  # why nothing is elicited, or need not be; empty if something is
    line: str = ""  # the chosen one; empty if none was tried
    line_tokens: int = 0
    control: str = ""
    control_tokens: int = 0
    tried: tuple[TriedLine, ...] = ()
    shares: tuple[ActionShare, ...] = ()
    above_twins: Estimate = NO_DIFFERENCE  # abstained under the line: uncertain prompts minus twins
    above_control: Estimate = NO_DIFFERENCE  # uncertain prompts declined, in whatever words: line minus control
    direction: WriteRecord = WriteRecord(available=False)  # of the abstentions, fitted under the line

    @property
    def elicited(self) -> bool:
        """Whether abstentions are elicited on which a verdict can be tried."""
        return bool(self.line) and not self.reason

    @classmethod
    def succeeded(cls, path: Path) -> bool:
        """Return whether the stage that wrote a file, if there is one, elicited something."""
        return path.is_file() and cls.read(path).elicited
