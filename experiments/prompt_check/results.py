"""Typed results of a prompt check, under the names that `refusal prompts check --json` prints."""

from __future__ import annotations

from pydantic import Field

from extract.record import Record

WordCount = tuple[str, int, int]  # a word, and the numbers of positive and of negative prompts that contain it


class QuadrupleCounts(Record):
    """Pairs that hold all four cells, their groups, and the prompts of each cell."""

    complete: int
    groups: int
    prompts: dict[str, int]


class TriggerCounts(Record):
    """The number of prompts with a trigger word, of different words, and the most frequent words."""

    prompts: int
    different: int
    commonest: dict[str, int]


class TwinCounts(Record):
    """Uncertain prompts, by kind, and their known twins."""

    uncertain: int
    kinds: dict[str, int]
    twins: int


class PersonaCounts(Record):
    """The table of personas by requests."""

    personas: int
    requests: int


class ContextCounts(Record):
    """Prompts with a system line or earlier turns before their last turn."""

    earlier_turns: int = Field(alias="with earlier turns")
    ambiguous: int = Field(alias="last turns that the first decides")
    system_line: int = Field(alias="with a system line")


class AurocInterval(Record):
    """An AUROC with its 95 % interval; `f"{auroc:.2f}"` gives `0.61 [0.53, 0.66]`."""

    auroc: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.auroc:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


class WordCues(Record):
    """How well words and surface features alone separate one contrast."""

    n: tuple[int, int]  # positive, negative
    bag_of_words: AurocInterval | str  # cross-validated; or the reason why there is none
    features: dict[str, AurocInterval]
    words_of_the_positive_side: tuple[WordCount, ...]
    words_of_the_negative_side: tuple[WordCount, ...]


class PromptCheck(Record):
    """The content of a prompt file, how well words alone separate its labels, and its problems."""

    prompts: int
    labels: dict[str, int]
    lacks: tuple[str, ...] = Field(alias="lacks, for a whole run")
    right_actions: dict[str, int] = Field(alias="right actions")
    categories: int
    groups: int
    repeated_texts: int = Field(alias="repeated texts")
    independent_benign: int = Field(alias="independent benign prompts")
    certifiable_rate: float = Field(alias="certifiable rate")
    quadruples: QuadrupleCounts
    triggers: TriggerCounts
    twins: TwinCounts
    personas: PersonaCounts
    contexts: ContextCounts
    words: dict[str, WordCues | str]  # by contrast; or the reason why there is nothing to compare
    problems: tuple[str, ...]
