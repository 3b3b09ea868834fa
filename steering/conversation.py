"""Answers of a model with its dials: one-off prompts (`refusal generate`), or a conversation (`refusal chat`).

Answers are streamed, with the reading and the decision of each dial. It does not print; `refusal.cli` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from extract.chat.render import render
from extract.chat.thinking import reopened, split_thinking
from extract.errors import UserError
from extract.model.adapter import base_of, is_adapter
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.model.quiet import quiet_libraries
from extract.model.streaming import StreamedText
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.record import Record
from extract.run_directory import file_of_run
from steering.controller import steering
from steering.dial import Dial, Kind
from steering.dial_file import check_weights, read_dials
from steering.gates import Reading, reading_line


@dataclass(frozen=True)
class Turn:
    """One answer, with the reading of each dial."""

    completion: str
    readings: dict[Kind, Reading]


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
        return dial.resolved(self.thresholds.get(dial.kind)).of(None)

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
        return Turn(pieces.text, readings.of_prompt(0))

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


class OneOffAnswer(Record):
    """One answer, with the reading and the decision of each dial."""

    prompt: str
    completion: str
    probability: dict[Kind, float]
    threshold: dict[Kind, float | None]
    gate: dict[Kind, str]
    category: dict[Kind, str | None] = {}  # whose threshold it is; None: that of all prompts


def open_with_dials(
    name: str,
    dials_path: Path | None,
    thresholds: Mapping[Kind, float | None],
    template: str | None = None,
    template_args: Mapping[str, JsonValue] | None = None,
    adapter: str | None = None,
    on_loading: Callable[[], None] = lambda: None,
) -> tuple[ChatModel, list[Dial], dict[Kind, float]]:
    """Load a model, its dials and their given thresholds.

    Args:
        dials_path: a `dials.safetensors`, or the directory of a run that has one.
        on_loading: called before the model is loaded, which takes a while.

    Raises:
        UserError: one of them cannot be loaded, or they do not fit together.
    """
    if dials_path is None and any(value is not None for value in thresholds.values()):
        raise UserError("thresholds need dials: give --dials FILE, made by refusal steer CONFIG")
    path = None if dials_path is None else file_of_run(dials_path, "dials.safetensors")
    dials, made_for = read_dials(path) if path else ([], None)
    chosen = {kind: value for kind, value in thresholds.items() if value is not None}
    for kind in chosen:
        if kind not in {dial.kind for dial in dials}:
            raise UserError(f"{path} holds no {kind} dial: leave --{kind}-threshold out")
    if adapter is None and is_adapter(name):
        name, adapter = _base(name), name
    on_loading()  # after what can be checked without the model
    quiet_libraries()
    model = load_model(name, adapter=adapter, template=template, template_args=template_args)
    if path and made_for and (remark := check_weights(path, made_for, model.fingerprint(), model.cast_fingerprint())):
        Reporter().say(remark)
    return model, dials, chosen


def _base(adapter: str) -> str:
    if (base := base_of(adapter)) is None:
        raise UserError(
            f"the adapter {adapter} does not name its base model; give the base as MODEL and --adapter {adapter}"
        )
    return base


def generate_once(
    model: ChatModel, texts: Sequence[str], dials: Sequence[Dial], thresholds: Mapping[Kind, float], max_new_tokens: int
) -> list[OneOffAnswer]:
    """Answer all prompts in one batch."""
    prompts = [Prompt(str(i), ({"role": "user", "content": text},), "benign", "answer") for i, text in enumerate(texts)]
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    batch = model.batch(rendered)
    with steering(model, dials, batch, rendered, thresholds) as readings:
        responses = model.generate(batch, max_new_tokens)
    return [
        OneOffAnswer(
            prompt=text,
            completion=reopened(rendered[i].text, model.decode(response)),
            probability={kind: one.probability for kind, one in read.items()},
            threshold={kind: one.threshold for kind, one in read.items()},
            gate={kind: one.gate for kind, one in read.items()},
            category={kind: one.category for kind, one in read.items()},
        )
        for i, (text, response) in enumerate(zip(texts, responses, strict=True))
        for read in [readings.of_prompt(i)]
    ]


def generate_streamed(
    model: ChatModel,
    texts: Sequence[str],
    dials: Sequence[Dial],
    thresholds: Mapping[Kind, float],
    max_new_tokens: int,
    on_text: Callable[[str], None],
) -> list[Turn]:
    """Answer the prompts in turn, passing each piece of text to `on_text`, then one line for each dial."""
    turns = []
    for text in texts:
        on_text(f"> {text}\n")
        turns.append(Conversation(model, dials, max_new_tokens, dict(thresholds)).say(text, on_text))
        on_text("".join(["\n", *(f"  {reading_line(kind, read)}\n" for kind, read in turns[-1].readings.items())]))
    return turns


def check_texts(texts: Sequence[str]) -> None:
    """Check that no prompt is empty.

    Raises:
        UserError: a prompt is empty.
    """
    if any(not text.strip() for text in texts):
        raise UserError("a prompt is empty; give each prompt as a quoted text")
