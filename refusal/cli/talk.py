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
    from steering.conversation import check_texts, generate_once, generate_streamed, open_with_dials

    if prompts == ["-"]:
        prompts = lines_of_stdin()
    else:
        _refuse_loose_words(model, prompts)
    check_texts(prompts)
    thresholds: dict[Kind, float | None] = {"normative": normative_threshold, "epistemic": epistemic_threshold}
    loaded, open_dials, given = open_with_dials(model, dials, thresholds, template, arguments(template_args), adapter)
    if as_json:
        print_json([one.to_dict() for one in generate_once(loaded, prompts, open_dials, given, max_new_tokens)])
    else:
        generate_streamed(loaded, prompts, open_dials, given, max_new_tokens, lambda text: typer.echo(text, nl=False))


def _refuse_loose_words(model: str, prompts: list[str]) -> None:
    """Refuse several words without quotes, which are several prompts; other scripts write sentences without spaces."""
    if len(prompts) > 1 and all(text.isascii() and len(text.split()) == 1 for text in prompts):
        from shlex import join

        from extract.errors import UserError

        quoted = join(["refusal", "generate", model, " ".join(prompts)])
        raise UserError(f"these are {len(prompts)} prompts of one word each; quote a prompt of several words: {quoted}")


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
