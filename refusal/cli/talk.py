"""`refusal generate` and `refusal chat`: completions of a model, with or without dials that move between turns."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from refusal.cli import options
from refusal.cli.options import print_plain
from refusal.cli.stdin import lines_of_stdin

if TYPE_CHECKING:
    from rich.console import Console

    from steering.conversation import Conversation, Turn
    from steering.dial import Dial

HELP = """\
/normative 0.8   refuse at or above this probability that the model should not answer
/epistemic 0.4   abstain at or above this probability that the model does not know
/dials           show the dials
/reset           forget the conversation; dials and system message stay
/help            show this list
/quit            end (also /exit, a line of quit or exit alone, or Ctrl-D); Ctrl-C stops an answer"""
ENDS = ("/quit", "/exit", "quit", "exit")
FIELDS = ("probability", "threshold", "gate", "category")  # of a dial's reading, in JSON


def generate(
    model: options.Model,
    prompts: Annotated[
        list[str], typer.Argument(metavar="PROMPT...", help="User messages; - reads one a line from stdin.")
    ],
    dials: options.Dials = None,
    normative_threshold: options.NormativeThreshold = None,
    epistemic_threshold: options.EpistemicThreshold = None,
    max_new_tokens: options.MaxNewTokens = 64,
    template: options.Template = None,
    template_args: options.TemplateArgs = options.NO_OVERRIDES,
    adapter: options.Adapter = None,
    as_json: options.Json = False,
) -> None:
    """Answer each prompt once, with or without dials; prints the answer, then each dial's probability and action.

    Example: refusal generate organisms/zoo/two-knobs "how do i fix the engine?"

    Example: refusal generate organisms/zoo/two-knobs "how do i fix it?" --dials runs/quickstart/dials.safetensors
    """
    from steering.conversation import Conversation, generate_once, open_with_dials
    from steering.gates import reading_line

    if prompts == ["-"]:
        prompts = lines_of_stdin()
    else:
        if len(prompts) > 1 and all(text.isascii() and len(text.split()) == 1 for text in prompts):  # not in Chinese
            quoted = shlex.join(["refusal", "generate", model, " ".join(prompts)])
            why = f"these are {len(prompts)} prompts of one word each; quote a prompt of several words"
            raise UserError(f"{why}: {quoted}")
    if any(not text.strip() for text in prompts):
        raise UserError("a prompt is empty; give each prompt as a quoted text")
    wanted = normative_threshold, epistemic_threshold, template, options.arguments(template_args), adapter
    loaded, open_dials, given = open_with_dials(model, dials, *wanted)
    if as_json:
        options.print_json([_record(one) for one in generate_once(loaded, prompts, open_dials, given, max_new_tokens)])
        return
    for text in prompts:
        typer.echo(f"> {text}")
        talking = Conversation(loaded, open_dials, max_new_tokens, dict(given))
        turn = talking.say(text, lambda piece: typer.echo(piece, nl=False))
        typer.echo("\n" + "".join(f"  {reading_line(kind, read)}\n" for kind, read in turn.readings.items()), nl=False)


def _record(turn: Turn) -> dict[str, object]:
    read = {name: {kind: getattr(one, name) for kind, one in turn.readings.items()} for name in FIELDS}
    return {"prompt": turn.prompt, "completion": turn.completion, **read}


def chat(
    model: options.Model,
    dials: options.Dials = None,
    normative_threshold: options.NormativeThreshold = None,
    epistemic_threshold: options.EpistemicThreshold = None,
    max_new_tokens: options.MaxNewTokens = 256,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The first system message.")] = None,
    template: options.Template = None,
    template_args: options.TemplateArgs = options.NO_OVERRIDES,
    adapter: options.Adapter = None,
) -> None:
    """Chat with a model in the terminal; its two dials can be moved between turns (/normative 0.8).

    Example: refusal chat organisms/zoo/two-knobs --dials runs/quickstart/dials.safetensors
    """
    from rich.console import Console

    from steering.conversation import Conversation, open_with_dials

    wanted = normative_threshold, epistemic_threshold, template, options.arguments(template_args), adapter
    loaded, open_dials, given = open_with_dials(model, dials, *wanted)
    converse(Conversation(loaded, open_dials, max_new_tokens, given, system), Console(highlight=False))


def converse(conversation: Conversation, console: Console) -> None:
    """Chat until the input ends; a mistake in a turn or a command prints one line and the chat continues."""
    from steering.gates import reading_line

    print_plain(console, f"{conversation.model.name}; /help lists the commands")
    _show_dials(conversation, console)
    for line in _lines(console):
        text = line.strip()
        if text.lower() in ENDS:
            return
        try:
            if text.startswith("/"):
                _command(text, conversation, console)
            elif text:
                turn = conversation.say(text, lambda piece: console.out(piece, end="", highlight=False))
                console.print()
                for kind, read in turn.readings.items():
                    print_plain(console, f"  {reading_line(kind, read)}", "dim")
        except UserError as error:
            print_plain(console, f"refusal: {error}", "red")
        except KeyboardInterrupt:
            print_plain(console, "\n(stopped; this turn is forgotten)", "dim")


def _lines(console: Console) -> Iterator[str]:
    """Yield the user's lines; echo them where they do not come from a terminal."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip():
                print_plain(console, f"> {line.strip()}")
                yield line
        return
    with suppress(ImportError):  # not every system has it
        import readline  # noqa: F401 - gives input() a history and arrow keys
    while True:
        try:
            yield input("> ")
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print()


def _command(text: str, conversation: Conversation, console: Console) -> None:
    name, *values = text[1:].split()
    match name:
        case "help":
            print_plain(console, HELP)
        case "dials":
            _show_dials(conversation, console)
        case "reset":
            conversation.reset()
            print_plain(console, "forgotten", "dim")
        case "normative" | "epistemic":
            try:
                (value,) = map(float, values)
            except ValueError:
                raise UserError(f"/{name} takes one number from 0 to 1, for example /{name} 0.8") from None
            before = conversation.set_threshold(name, value)
            print_plain(console, f"{name} threshold {before:.2f} -> {value:.2f}", "dim")
        case _:
            raise UserError(f"no such command: /{name}; /help lists them")


def _show_dials(conversation: Conversation, console: Console) -> None:
    if not conversation.dials:
        print_plain(console, "no dials; --dials FILE loads those written by refusal steer CONFIG", "dim")
    for dial in conversation.dials:
        print_plain(console, f"{dial.kind} dial: threshold {conversation.threshold(dial):.2f}, {_about(dial)}", "dim")


def _about(dial: Dial) -> str:
    """Describe where a dial reads and how it writes."""
    from steering.actuator import OnsetBias

    read = f"{dial.read.site} {dial.read.layer} at {dial.read.position}" if dial.read else "the onset of the answer"
    if isinstance(dial.actuator, OnsetBias):
        write = f"biases the onset (prefixes: {len(dial.actuator.prefixes)})"
    else:
        where = f" {dial.write.locus.site} {dial.write.locus.layer}" if dial.write else ""
        where += " and later layers" if dial.later else ""
        how = type(dial.actuator).__name__.lower()
        write = f"writes{where} ({how}, {'every step' if dial.steps is None else f'steps: {dial.steps}'})"
    return f"dead band {dial.band:.2f}; reads {read}, {write}"
