"""Answers of a model under its dials: one-off prompts (`refusal generate`), or a conversation (`refusal chat`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from extract.chat.render import render
from extract.chat.template import template_arguments
from extract.chat.thinking import reopened, split_thinking
from extract.errors import UserError
from extract.model.adapter import base_of, is_adapter
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.model.loading_options import quiet_libraries
from extract.model.streaming import StreamedText
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.run_directory import file_of_run
from steering.controller import respond
from steering.dial import Dial, Kind
from steering.dial_file import check_model, read_dials
from steering.gates import Reading


@dataclass(frozen=True)
class Turn:
    """One answer, with the reading of each dial."""

    prompt: str
    completion: str
    readings: dict[Kind, Reading]


@dataclass
class Conversation:
    """The messages so far; thresholds may be changed between turns."""

    model: ChatModel
    dials: Sequence[Dial]
    max_new_tokens: int
    thresholds: dict[Kind, float] = field(default_factory=dict)  # those given; others are the dial's or its category's
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Delete the messages; the system message and the thresholds are kept."""
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    def threshold(self, dial: Dial) -> float:
        """Return the threshold of a dial where no category has one of its own."""
        return dial.resolved(self.thresholds.get(dial.kind)).of(None)

    def set_threshold(self, kind: Kind, threshold: float) -> float:
        """Set a threshold from the next turn on; return the former one."""
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
        limit = self.model.context
        if limit and len(row.token_ids) + self.max_new_tokens > limit:
            raise UserError(
                f"the conversation has {len(row.token_ids)} tokens and an answer may take {self.max_new_tokens} "
                f"more, but {self.model.name} reads {limit} at most: start a new conversation"
            )
        pieces, n = StreamedText(self.model, row), self.max_new_tokens
        _, readings = respond(
            self.model, self.dials, [row], n, self.thresholds, lambda tokens: on_text(pieces.push(tokens[0]))
        )
        on_text(pieces.rest())
        answer = split_thinking(pieces.text).answer.strip() or pieces.text
        self.messages = [*asked, {"role": "assistant", "content": answer}]
        return Turn(text, pieces.text, readings.of_prompt(0))


def open_with_dials(
    name: str,
    dials_path: Path | None,
    normative: float | None,
    epistemic: float | None,
    template: str | None = None,
    template_args: Mapping[str, JsonValue] | None = None,
    adapter: str | None = None,
    on_loading: Callable[[], None] = lambda: None,
) -> tuple[ChatModel, list[Dial], dict[Kind, float]]:
    """Load a model, its dials (a `dials.safetensors`, or the directory of a run) and their given thresholds."""
    asked: dict[Kind, float | None] = {"normative": normative, "epistemic": epistemic}
    chosen = {kind: value for kind, value in asked.items() if value is not None}
    if dials_path is None and chosen:
        raise UserError("thresholds need dials: give --dials FILE, made by refusal steer CONFIG")
    path = None if dials_path is None else file_of_run(dials_path, "dials.safetensors")
    dials, made_for = read_dials(path) if path else ([], None)
    if absent := chosen.keys() - {dial.kind for dial in dials}:
        raise UserError(f"{path} holds no {min(absent)} dial: leave --{min(absent)}-threshold out")
    if adapter is None and is_adapter(name):
        if (base := base_of(name)) is None:
            raise UserError(
                f"the adapter {name} does not name its base model; give the base as MODEL and --adapter {name}"
            )
        name, adapter = base, name
    on_loading()  # after what can be checked without the model
    quiet_libraries()
    model = load_model(name, adapter=adapter, template=template, template_args=template_args)
    if path and made_for:
        here = model.fingerprint(), model.cast_fingerprint(), template_arguments(model.tokenizer)
        if remark := check_model(path, made_for, *here):
            Reporter().say(remark)
    return model, dials, chosen


def generate_once(
    model: ChatModel, texts: Sequence[str], dials: Sequence[Dial], thresholds: Mapping[Kind, float], max_new_tokens: int
) -> list[Turn]:
    """Answer all prompts in one batch."""
    prompts = [Prompt(str(i), ({"role": "user", "content": text},), "benign", "answer") for i, text in enumerate(texts)]
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    responses, readings = respond(model, dials, rendered, max_new_tokens, thresholds)
    return [
        Turn(text, reopened(rendered[i].text, model.decode(response)), readings.of_prompt(i))
        for i, (text, response) in enumerate(zip(texts, responses, strict=True))
    ]
