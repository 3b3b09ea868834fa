"""`refusal generate` and `refusal chat`: completions of a model, with or without dials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from refusal.cli.options import (
    NO_OVERRIDES,
    Adapter,
    Dials,
    EpistemicThreshold,
    Json,
    MaxNewTokens,
    Model,
    NormativeThreshold,
    Template,
    TemplateArgs,
    arguments,
    print_json,
)

if TYPE_CHECKING:
    from steering.conversation import Turn
    from steering.dial import Kind


def generate(
    model: Model,
    prompts: Annotated[
        list[str], typer.Argument(metavar="PROMPT...", help="User messages; - reads one a line from stdin.")
    ],
    dials: Dials = None,
    normative_threshold: NormativeThreshold = None,
    epistemic_threshold: EpistemicThreshold = None,
    max_new_tokens: MaxNewTokens = 64,
    template: Template = None,
    template_args: TemplateArgs = NO_OVERRIDES,
    adapter: Adapter = None,
    as_json: Json = False,
) -> None:
    """Answer each prompt once, with or without dials; prints the answer, then each dial's probability and action.

    Example: refusal generate organisms/zoo/two-knobs "how do i fix the engine?"

    Example: refusal generate organisms/zoo/two-knobs "how do i fix it?" --dials runs/quickstart/dials.safetensors
    """
    from refusal.cli.stdin import lines_of_stdin
    from steering.conversation import Conversation, generate_once, open_with_dials
    from steering.gates import reading_line

    if prompts == ["-"]:
        prompts = lines_of_stdin()
    _check_prompts(model, prompts)
    thresholds: dict[Kind, float | None] = {"normative": normative_threshold, "epistemic": epistemic_threshold}
    loaded, open_dials, given = open_with_dials(model, dials, thresholds, template, arguments(template_args), adapter)
    if as_json:
        answers = generate_once(loaded, prompts, open_dials, given, max_new_tokens)
        print_json([_record(one) for one in answers])
        return
    for text in prompts:
        typer.echo(f"> {text}")
        talking = Conversation(loaded, open_dials, max_new_tokens, dict(given))
        turn = talking.say(text, lambda piece: typer.echo(piece, nl=False))
        typer.echo("\n" + "".join(f"  {reading_line(kind, read)}\n" for kind, read in turn.readings.items()), nl=False)


def _record(turn: Turn) -> dict[str, object]:
    fields = ("probability", "threshold", "gate", "category")
    read = {name: {kind: getattr(one, name) for kind, one in turn.readings.items()} for name in fields}
    return {"prompt": turn.prompt, "completion": turn.completion, **read}


def _check_prompts(model: str, prompts: list[str]) -> None:
    """Refuse empty prompts, and several words without quotes, which are several prompts; Chinese has no spaces."""
    from extract.errors import UserError

    if len(prompts) > 1 and all(text.isascii() and len(text.split()) == 1 for text in prompts):
        from shlex import join

        quoted = join(["refusal", "generate", model, " ".join(prompts)])
        raise UserError(f"these are {len(prompts)} prompts of one word each; quote a prompt of several words: {quoted}")
    if any(not text.strip() for text in prompts):
        raise UserError("a prompt is empty; give each prompt as a quoted text")


def chat(
    model: Model,
    dials: Dials = None,
    normative_threshold: NormativeThreshold = None,
    epistemic_threshold: EpistemicThreshold = None,
    max_new_tokens: MaxNewTokens = 256,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The first system message.")] = None,
    template: Template = None,
    template_args: TemplateArgs = NO_OVERRIDES,
    adapter: Adapter = None,
) -> None:
    """Chat with a model in the terminal; its two dials can be moved between turns (/normative 0.8).

    Example: refusal chat organisms/zoo/two-knobs --dials runs/quickstart/dials.safetensors
    """
    from rich.console import Console

    from refusal.cli.terminal_chat import chat as talk
    from steering.conversation import Conversation, open_with_dials

    thresholds: dict[Kind, float | None] = {"normative": normative_threshold, "epistemic": epistemic_threshold}
    loaded, open_dials, given = open_with_dials(model, dials, thresholds, template, arguments(template_args), adapter)
    talk(Conversation(loaded, open_dials, max_new_tokens, given, system), Console(highlight=False))
