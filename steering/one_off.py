"""`refusal generate`: one-off answers to a few prompts, with or without dials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from extract.chat.render import render
from extract.chat.thinking import reopened
from extract.errors import UserError
from extract.model.adapter import base_of, is_adapter
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.model.quiet import quiet_libraries
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.record import Record
from extract.run_directory import file_of_run
from steering.controller import steering
from steering.conversation import Conversation, Turn, chosen_thresholds, reports
from steering.dial import Dial, Kind, check_weights, read_dials
from steering.gates import DECISIONS


class OneOffAnswer(Record):
    """One answer, with the reading and the decision of each dial."""

    prompt: str
    completion: str
    probability: dict[Kind, float]
    threshold: dict[Kind, float]
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
    chosen = chosen_thresholds(thresholds, dials, path)
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
            probability={report.kind: report.probability for report in reports(readings, i)},
            threshold={report.kind: report.threshold for report in reports(readings, i)},
            gate={report.kind: DECISIONS[report.gate] for report in reports(readings, i)},
            category={report.kind: report.category for report in reports(readings, i)},
        )
        for i, (text, response) in enumerate(zip(texts, responses, strict=True))
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
        on_text("".join(["\n", *(f"  {report.line()}\n" for report in turns[-1].reports)]))
    return turns


def check_texts(texts: Sequence[str]) -> None:
    """Check that no prompt is empty.

    Raises:
        UserError: a prompt is empty.
    """
    if any(not text.strip() for text in texts):
        raise UserError("a prompt is empty; give each prompt as a quoted text")
