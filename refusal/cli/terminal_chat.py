"""`refusal chat`: a conversation in the terminal, with dials that move between turns. It also reads piped lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from rich.console import Console

from extract.errors import UserError
from steering.actuator import OnsetBias
from steering.conversation import Conversation
from steering.dial import Dial, Kind
from steering.gates import reading_line

HELP = """\
/normative 0.8   refuse at or above this probability that the model should not answer
/epistemic 0.4   abstain at or above this probability that the model does not know
/dials           show the dials
/reset           forget the conversation; dials and system message stay
/help            show this list
/quit            end (also /exit, a line of quit or exit alone, or Ctrl-D); Ctrl-C stops an answer"""
ENDS = ("/quit", "/exit", "quit", "exit")


def chat(conversation: Conversation, console: Console) -> None:
    """Chat until the input ends; a mistake in a turn or a command prints one line and the chat continues."""
    _show(console, f"{conversation.model.name}; /help lists the commands")
    _dials(conversation, console)
    for line in _lines(console):
        text = line.strip()
        if text.lower() in ENDS:
            return
        try:
            if text.startswith("/"):
                _command(text, conversation, console)
            elif text:
                _turn(text, conversation, console)
        except UserError as error:
            _show(console, f"refusal: {error}", "red")
        except KeyboardInterrupt:
            _show(console, "\n(stopped; this turn is forgotten)", "dim")


def _lines(console: Console) -> Iterator[str]:
    """Yield the user's lines; echo them where they do not come from a terminal."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip():
                _show(console, f"> {line.strip()}")
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


def _turn(text: str, conversation: Conversation, console: Console) -> None:
    turn = conversation.say(text, lambda piece: console.out(piece, end="", highlight=False))
    console.print()
    for kind, read in turn.readings.items():
        _show(console, f"  {reading_line(kind, read)}", "dim")


def _command(text: str, conversation: Conversation, console: Console) -> None:
    name, *values = text[1:].split()
    match name:
        case "help":
            _show(console, HELP)
        case "dials":
            _dials(conversation, console)
        case "reset":
            conversation.reset()
            _show(console, "forgotten", "dim")
        case "normative" | "epistemic":
            _move(name, values, conversation, console)
        case _:
            raise UserError(f"no such command: /{name}; /help lists them")


def _move(kind: Kind, values: list[str], conversation: Conversation, console: Console) -> None:
    try:
        (value,) = map(float, values)
    except ValueError:
        raise UserError(f"/{kind} takes one number from 0 to 1, for example /{kind} 0.8") from None
    before = conversation.set_threshold(kind, value)
    _show(console, f"{kind} threshold {before:.2f} -> {value:.2f}", "dim")


def _dials(conversation: Conversation, console: Console) -> None:
    if not conversation.dials:
        _show(console, "no dials; --dials FILE loads those written by refusal steer CONFIG", "dim")
    for dial in conversation.dials:
        _show(console, f"{dial.kind} dial: threshold {conversation.threshold(dial):.2f}, {_about(dial)}", "dim")


def _about(dial: Dial) -> str:
    """Describe where a dial reads and how it writes."""
    read = (
        f"reads {dial.read.site} {dial.read.layer} at {dial.read.position}"
        if dial.read
        else "reads the onset of the answer"
    )
    how = type(dial.actuator).__name__.lower()
    if isinstance(dial.actuator, OnsetBias):
        write = f"biases the onset (prefixes: {len(dial.actuator.prefixes)})"
    else:
        where = f" {dial.write.locus.site} {dial.write.locus.layer}" if dial.write else ""
        where += " and later layers" if dial.later else ""
        write = f"writes{where} ({how}, {'every step' if dial.steps is None else f'steps: {dial.steps}'})"
    return f"dead band {dial.band:.2f}; {read}, {write}"


def _show(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)
