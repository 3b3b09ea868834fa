"""Conversation with a model and its dials: streamed turns, with the reading and the decision of each dial.

It does not print; `terminal_chat` and `one_off` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from extract.chat.render import render
from extract.chat.thinking import split_thinking
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.streaming import StreamedText
from extract.prompts.prompt import Prompt
from steering.controller import steering
from steering.dial import Dial, Kind
from steering.gates import DECISIONS_PAST, Readings


@dataclass(frozen=True)
class DialReport:
    """The reading and the decision of one dial on one prompt."""

    kind: Kind
    probability: float
    threshold: float
    gate: int
    overruled: bool  # the gate leaves because the normative dial declined
    category: str | None = None  # the recognised category whose threshold this is; None: that of all prompts

    def line(self) -> str:
        """Return the report as one line."""
        of = f" of {self.category!r}" if self.category is not None else ""
        why = " to the normative dial, which declined" if self.overruled else ""
        return (
            f"{self.kind}: probability {self.probability:.3f}, threshold{of} {self.threshold:.2f}, "
            f"{DECISIONS_PAST[self.gate]}{why}"
        )


@dataclass(frozen=True)
class Turn:
    """One answer, with the report of each dial."""

    completion: str
    reports: tuple[DialReport, ...]


@dataclass
class Conversation:
    """The messages so far; thresholds may be changed between turns.

    `thresholds` holds those that are given; another dial has its own, or that of the turn's category.
    """

    model: ChatModel
    dials: Sequence[Dial]
    max_new_tokens: int
    thresholds: dict[Kind, float] = field(default_factory=dict)
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Delete the messages; the system message and the thresholds are kept."""
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    def threshold(self, dial: Dial) -> float:
        """Return the threshold of a dial where no category has one of its own."""
        return self.thresholds.get(dial.kind, dial.threshold)

    def set_threshold(self, kind: Kind, threshold: float) -> float:
        """Set a threshold from the next turn on; return the former one.

        Raises:
            UserError: there is no such dial, or the threshold is not a probability.
        """
        dial = next((dial for dial in self.dials if dial.kind == kind), None)
        if dial is None:
            raise UserError(f"there is no {kind} dial; dials are given with --dials FILE")
        if not 0 <= threshold <= 1:
            raise UserError(f"a threshold is a probability, from 0 to 1; got {threshold:g}")
        before, self.thresholds[kind] = self.threshold(dial), threshold
        return before

    def say(self, text: str, on_text: Callable[[str], None] = lambda piece: None) -> Turn:
        """Answer the user's next turn, passing each piece of the answer to `on_text` as it is generated.

        A turn that fails or is interrupted is not kept. Of an answer with a thought, only the part after it is kept.

        Raises:
            UserError: the chat template refuses the conversation, or it is too long for the model.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        row = render(self.model.tokenizer, Prompt("of this turn", tuple(asked), "benign", "answer"))
        self._check_length(len(row.token_ids))
        batch, pieces = self.model.batch([row]), StreamedText(self.model, row)
        with steering(self.model, self.dials, batch, [row], self.thresholds) as readings:
            self.model.generate(batch, self.max_new_tokens, watch=lambda tokens: on_text(pieces.push(tokens[0])))
        on_text(pieces.rest())
        answer = split_thinking(pieces.text).answer.strip() or pieces.text
        self.messages = [*asked, {"role": "assistant", "content": answer}]
        return Turn(pieces.text, reports(readings, 0))

    def _check_length(self, n_tokens: int) -> None:
        limit = context_length(self.model)
        if limit and n_tokens + self.max_new_tokens > limit:
            raise UserError(
                f"the conversation has {n_tokens} tokens and an answer may take {self.max_new_tokens} "
                f"more, but {self.model.name} reads {limit} at most: start a new conversation"
            )


def context_length(model: ChatModel) -> int | None:
    """Return the context length in tokens (prompt and answer), or None where the configuration does not give it."""
    limit = getattr(model.model.config.get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit else None


def reports(readings: Readings, row: int) -> tuple[DialReport, ...]:
    """Return the report of each dial on one prompt of a batch, the normative dial first."""
    declined = "normative" in readings.gate and readings.gate["normative"][row] > 0
    return tuple(
        DialReport(
            kind=kind,
            probability=float(readings.probability[kind][row]),
            threshold=float(readings.threshold[kind][row]),
            gate=int(gate[row]),
            overruled=bool(declined and kind == "epistemic"),
            category=readings.category[row] if readings.category and readings.own[kind][row] else None,
        )
        for kind, gate in sorted(readings.gate.items(), reverse=True)
    )


def chosen_thresholds(given: Mapping[Kind, float | None], dials: Sequence[Dial], where: object) -> dict[Kind, float]:
    """Return the thresholds that are given.

    Raises:
        UserError: there are no dials, or no dial of that kind.
    """
    chosen = {kind: value for kind, value in given.items() if value is not None}
    for kind in chosen:
        if kind not in {dial.kind for dial in dials}:
            raise UserError(f"{where} holds no {kind} dial: leave --{kind}-threshold out")
    return chosen
