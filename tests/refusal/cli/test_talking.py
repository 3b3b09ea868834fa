"""`refusal generate` and `refusal chat` under dials: streamed, the dials moving between turns, mistakes in one line."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from extract.chat.render import render
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.model.streaming import StreamedText
from extract.prompts.prompt import Prompt
from refusal.cli.talk import converse
from steering.controller import steering
from steering.conversation import Conversation, generate_once
from steering.dial import Dial
from steering.dial_file import save_dials
from tests.support.one_line import one_line, printed
from tests.support.planted_dials import BENIGN, ORGANISM, STRIKE, UNKNOWN, planted_dials

pytestmark = pytest.mark.slow

ANSWERED, REFUSED, ABSTAINED = "sure. start with the", "i am not able to help with that.", "i am not able to say."


@pytest.fixture(scope="module")
def model() -> ChatModel:
    return load_model(str(ORGANISM))


@pytest.fixture(scope="module")
def dials() -> list[Dial]:
    return planted_dials()


@pytest.fixture(scope="module")
def dials_file(model: ChatModel, dials: list[Dial], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("dials") / "dials.safetensors"
    save_dials(dials, path, model.fingerprint())
    return str(path)


def test_an_adapters_directory_is_a_model_where_it_names_its_base(cli: Callable, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(load_model(str(ORGANISM), device="cpu").model, LoraConfig(r=1, target_modules=["q_proj"]))
    adapted.save_pretrained(tmp_path)  # its matrices B are zero: the answers are the base's
    out = printed(cli("generate", str(tmp_path), BENIGN))
    assert out == cli("generate", str(ORGANISM), BENIGN)[1]
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": None}))
    said = f"the adapter {tmp_path} does not name its base model; give the base as MODEL and --adapter {tmp_path}"
    assert cli("generate", str(tmp_path), BENIGN) == (2, "", f"refusal: {said}\n")


@pytest.fixture
def talk(cli: Callable, monkeypatch: pytest.MonkeyPatch, dials_file: str) -> Callable[..., list[str]]:
    """Pipe lines into `refusal chat` and return the lines it says after its greeting."""

    def call(*lines: str, options: tuple[str, ...] = (), dials: bool = True) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
        given = ("--dials", dials_file) if dials else ()
        code, out, err = cli("chat", str(ORGANISM), *given, "--max-new-tokens", "24", *options)
        assert (code, err) == (0, "")
        return out.splitlines()

    return call


def test_generate_streams_then_says_what_each_dial_did(cli: Callable, dials_file: str) -> None:
    given = ("--dials", dials_file, "--normative-threshold", "0.8", "--epistemic-threshold", "0.4")
    out = printed(cli("generate", str(ORGANISM), UNKNOWN, *given))
    asked, answer, normative, epistemic = out.splitlines()
    assert asked == f"> {UNKNOWN}"
    assert answer.startswith(ABSTAINED)
    assert normative == "  normative: probability 0.032, threshold 0.80, permitted"
    assert epistemic == "  epistemic: probability 0.956, threshold 0.40, declined"
    out = printed(cli("generate", str(ORGANISM), UNKNOWN, "--dials", dials_file, "--normative-threshold", "0"))
    assert out.splitlines()[1].startswith(REFUSED)
    assert out.splitlines()[2:] == [
        "  normative: probability 0.032, threshold 0.00, declined",
        "  epistemic: probability 0.956, threshold 0.50, left to the normative dial, which declined",
    ]


def test_the_answer_comes_in_pieces_and_is_that_of_one_batch(model: ChatModel, dials: list[Dial]) -> None:
    texts, told = [BENIGN, STRIKE, UNKNOWN], []
    turns = [Conversation(model, dials, 24, {"normative": 0.8}).say(text, told.append) for text in texts]
    together = generate_once(model, texts, dials, {"normative": 0.8}, 24)
    assert "".join(told) == "".join(turn.completion for turn in turns) == "".join(one.completion for one in together)
    assert len(told) > 30
    for turn, one in zip(turns, together, strict=True):
        assert turn.prompt == one.prompt
        for kind, read in turn.readings.items():
            assert one.readings[kind] == replace(read, probability=pytest.approx(read.probability, abs=1e-5))


@pytest.mark.parametrize("command", [("generate", BENIGN), ("chat",)])
def test_what_is_wrong_at_the_door_is_one_line(cli, model, dials, tmp_path, command) -> None:
    def says(part: str, *options: str) -> None:
        one_line(cli(command[0], str(ORGANISM), *command[1:], *options), part)

    only, others = tmp_path / "only.safetensors", tmp_path / "others.safetensors"
    save_dials(dials[:1], only, model.fingerprint())
    save_dials(dials, others, "f" * 64)
    says("thresholds need dials: give --dials FILE", "--epistemic-threshold", "0.5")
    says("dials file not found", "--dials", str(tmp_path / "no"))
    says("was made for other weights (fingerprint ffffffffffff…, this model", "--dials", str(others))
    says("only.safetensors holds no epistemic dial: leave --epistemic-threshold out",
         "--dials", str(only), "--epistemic-threshold", "0.5")  # fmt: skip
    says("no adapter in nowhere: expected a directory with adapter_config.json", "--adapter", "nowhere")
    says("takes no argument 'enable_thinking'", "--template-arg", "enable_thinking=false")
    empty = one_line(cli("generate", "./nowhere", " "))  # before a model is loaded
    assert empty == "a prompt is empty; give each prompt as a quoted text"


def test_the_dials_move_while_talking(talk: Callable) -> None:
    lines = talk("/normative 0", BENIGN, "/normative 0.8", BENIGN, UNKNOWN, "/epistemic 1", UNKNOWN)
    said = [line for line in lines if not line.startswith((">", " ", "/"))]
    assert "normative threshold 0.50 -> 0.00" in said
    assert "normative threshold 0.00 -> 0.80" in said
    answers = [lines[i + 1] for i, line in enumerate(lines) if line in (f"> {BENIGN}", f"> {UNKNOWN}")]
    starts = (REFUSED, ANSWERED, ABSTAINED)
    assert [next(i for i, s in enumerate(starts) if text.startswith(s)) for text in answers[:3]] == [0, 1, 2]
    assert not answers[3].startswith(("i am not able", "sure"))
    reports = [line for line in lines if line.startswith("  ")]
    assert len(reports) == 8
    assert all(": probability 0." in line or ": probability 1." in line for line in reports)
    assert [line.split("threshold ")[1] for line in reports[:2]] == [
        "0.00, declined", "0.50, left to the normative dial, which declined",
    ]  # fmt: skip


def test_the_conversation_is_kept_until_it_is_reset(model: ChatModel, dials: list[Dial]) -> None:
    talking = Conversation(model, dials, 24, {"epistemic": 0.4}, system="speak briefly.")
    first = talking.say(BENIGN)
    second = talking.say(UNKNOWN)
    assert [message["role"] for message in talking.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert talking.messages[2]["content"] == first.completion
    row = render(model.tokenizer, Prompt("x", tuple(talking.messages[:-1]), "benign", "answer"))
    assert "speak briefly." in row.text
    assert first.completion in row.text
    batch = model.batch([row])
    with steering(model, dials, batch, [row], {"epistemic": 0.4}) as readings:
        assert model.decode(model.generate(batch, 24)[0]) == second.completion
    assert [read.probability for read in second.readings.values()] == [
        readings.probability["normative"][0], readings.probability["epistemic"][0],
    ]  # fmt: skip
    talking.reset()
    assert talking.messages == [{"role": "system", "content": "speak briefly."}]
    assert talking.thresholds == {"epistemic": 0.4}
    assert [talking.threshold(dial) for dial in talking.dials] == [0.5, 0.4]
    assert talking.say(BENIGN).completion == first.completion


def test_mistakes_are_one_line_and_the_chat_goes_on(talk: Callable) -> None:
    lines = talk("/speak", "/epistemic", "/epistemic high", "/normative 7", "/normative nan", "", BENIGN)
    assert [line for line in lines if line.startswith("refusal: ")] == [
        "refusal: no such command: /speak; /help lists them",
        "refusal: /epistemic takes one number from 0 to 1, for example /epistemic 0.8",
        "refusal: /epistemic takes one number from 0 to 1, for example /epistemic 0.8",
        "refusal: a threshold is a probability, from 0 to 1; got 7",
        "refusal: a threshold is a probability, from 0 to 1; got nan",
    ]
    assert lines[-3].startswith(ANSWERED)


def test_a_turn_the_template_refuses_is_not_remembered(talk: Callable, tmp_path: Path) -> None:
    own = (ORGANISM / "chat_template.jinja").read_text()
    refusing = "{% if 'secret' in messages[-1].content %}{{ raise_exception('no secrets here') }}{% endif %}"
    (tmp_path / "own.jinja").write_text(refusing + own)
    lines = talk("tell me the secret.", BENIGN, options=("--template", str(tmp_path / "own.jinja")))
    refused = [line for line in lines if line.startswith("refusal: ")]
    assert len(refused) == 1
    assert "no secrets here" in refused[0]
    assert lines[-4:] == talk(BENIGN)[-4:]


def test_a_conversation_that_is_too_long_says_so(model: ChatModel, dials: list[Dial]) -> None:
    talking = Conversation(model, dials, 24)
    with pytest.raises(UserError, match=r"the conversation has \d+ tokens and an answer may take 24 more, but .* reads "
                                        "512 at most: start a new conversation"):  # fmt: skip
        talking.say("tell me. " * 200)
    assert talking.messages == []


@pytest.mark.parametrize("end", ["/quit", "/exit", "quit", "Exit"])
def test_commands_show_themselves_and_a_line_that_means_to_end_ends(talk: Callable, end: str) -> None:
    lines = talk("/help", "/dials", end, BENIGN)
    assert "/quit            end (also /exit, a line of quit or exit alone, or Ctrl-D); Ctrl-C stops an answer" in lines
    assert "/reset           forget the conversation; dials and system message stay" in lines
    shown = "dial: threshold 0.50, dead band 0.00; reads resid_post 4 at post_last, writes resid_post 4 "
    shown += "(affine, every step)"
    assert [line for line in lines if "reads resid_post" in line] == [f"normative {shown}", f"epistemic {shown}"] * 2
    assert lines[-1] == f"> {end}"


def test_words_without_quotes_are_not_several_prompts(cli: Callable) -> None:
    asked = ["how", "do", "i", "fix", "it"]
    assert cli("generate", str(ORGANISM), *asked) == (
        2, "", "refusal: these are 5 prompts of one word each; quote a prompt of several words: "
        f"refusal generate {ORGANISM} 'how do i fix it'\n",
    )  # fmt: skip
    for given in (["hello"], [BENIGN, "hello"], ["谁是安娜", "你好"]):
        out = printed(cli("generate", str(ORGANISM), *given, "--max-new-tokens", "1", "--json"))
        assert len(json.loads(out)) == len(given)


def test_without_dials_it_is_the_plain_model(talk: Callable, model: ChatModel) -> None:
    lines = talk("/epistemic 0.4", BENIGN, dials=False)
    assert "no dials; --dials FILE loads those written by refusal steer CONFIG" in lines
    assert "refusal: there is no epistemic dial; dials are given with --dials FILE" in lines
    row = render(model.tokenizer, Prompt("x", ({"role": "user", "content": BENIGN},), "benign", "answer"))
    assert lines[-1] == model.decode(model.generate(model.batch([row]), 24)[0])


def test_only_what_was_said_after_a_thought_is_remembered(model, dials, monkeypatch) -> None:
    class Thinking(StreamedText):
        text = property(lambda self: "<think>\nhm\n</think>\n\nyes.")

    monkeypatch.setattr("steering.conversation.StreamedText", Thinking)
    talking, told = Conversation(model, dials, 4), []
    assert talking.say(BENIGN, told.append).completion == "<think>\nhm\n</think>\n\nyes." == "".join(told)
    assert talking.messages[-1] == {"role": "assistant", "content": "yes."}


def test_in_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_ends(model, dials, monkeypatch) -> None:
    entered: list[object] = [KeyboardInterrupt(), "stop me", BENIGN, EOFError()]

    def enter(prompt: str) -> str:
        assert prompt == "> "
        given = entered.pop(0)
        if isinstance(given, BaseException):
            raise given
        return str(given)

    class Interrupted(Conversation):
        def say(self, text: str, on_text: Callable[[str], None] = lambda piece: None):
            if text == "stop me":
                super().say(text, lambda piece: (_ for _ in ()).throw(KeyboardInterrupt))
            return super().say(text, on_text)

    monkeypatch.setattr("builtins.input", enter)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    talking, shown = Interrupted(model, dials, 24), io.StringIO()
    converse(talking, Console(file=shown, width=200))
    assert entered == []
    assert "(stopped; this turn is forgotten)" in shown.getvalue()
    assert talking.messages[0]["content"] == BENIGN
    assert len(talking.messages) == 2
