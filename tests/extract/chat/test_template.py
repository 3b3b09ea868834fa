"""Chat templates: the choice of one, its arguments, its identity, and the plain format for base models."""

import copy
from pathlib import Path

import pytest
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from extract.chat.render import remarks, render
from extract.chat.template import (
    PLAIN_TEMPLATE,
    apply_template,
    choose_template,
    template_arguments,
    template_identity,
)
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from tests.extract.conftest import ask
from tests.support.one_line import refused

LOOP = "{%% for m in messages %%}%s{%% endfor %%}"
HI = ask("hi").messages
TALK = ask("who are you?\n", " a model ", "why?", system="Be brief.\n").messages
TURNS = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
SWITCHED = TURNS + "{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}{{ level }} >"
STRICT = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TURNS + ">"
SYSTEM, FIRST, REPLY, LAST = ask("who are you?", "a model", "why?", system=" Be brief.\n").messages


@pytest.mark.parametrize(
    ("ask_for", "date"),
    [
        ("{{ date_string }}", "26 Jul 2024"),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{% if strftime_now is defined %}{{ strftime_now('%A, %B %d, %Y') }}{% endif %}", "Friday, July 26, 2024"),
        ("{% macro m() %}{{ strftime_now('%Y-%m-%d') }}{% endmacro %}{{ m() }}", "2024-07-26"),
    ],
)
def test_dates_in_templates_are_pinned(tokenizer: PreTrainedTokenizerBase, ask_for: str, date: str) -> None:
    tokenizer.chat_template = f"\nToday is {ask_for}. " + LOOP % "{{ m['content'] }}" + " >"
    assert apply_template(tokenizer, HI) == f"\nToday is {date}. hi >"


def test_a_conversation_that_a_template_refuses_is_one_line(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = "{{ raise_exception('no system\nrole here') }}"
    refused(r"^the chat template of .* refused a conversation: no system role here$", apply_template, tokenizer, HI)
    tokenizer.chat_template = "{{ messages[0].content + 1 }}"
    refused(r"refused a conversation: can only concatenate str", apply_template, tokenizer, HI)


def test_a_missing_template_names_the_remedy(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = None
    message = r"has no chat template; choose a chat \(instruct\) model, .* model\.template=plain .* or a \.jinja file"
    for fails in (lambda: choose_template(tokenizer, None), lambda: apply_template(tokenizer, HI),
                  lambda: template_identity(tokenizer)):  # fmt: skip
        refused(message, fails)


@pytest.mark.parametrize("adds_bos", [True, False])
def test_plain_conversations_open_with_bos_where_the_tokenizer_adds_one(
    tokenizer: PreTrainedTokenizerBase, adds_bos: bool
) -> None:
    raw = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    if adds_bos:
        raw.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", tokenizer.bos_token_id)]
        )
    base = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<|begin|>")
    base.chat_template = choose_template(base, "plain")
    talk = "Be brief.\n\nQuestion: who are you?\nAnswer: a model\n\nQuestion: why?\nAnswer:"
    assert apply_template(base, TALK) == "<|begin|>" * adds_bos + talk
    ids = list(render(base, Prompt("p", TALK, "benign", "answer")).token_ids)
    assert ids.count(base.bos_token_id) == adds_bos
    base.bos_token = None
    assert choose_template(base, "plain") == PLAIN_TEMPLATE


def test_a_template_file_is_read(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text(LOOP % "{% generation %}{{ m.content }}{% endgeneration %}{% break %}", encoding="utf-8")
    tokenizer.chat_template = choose_template(tokenizer, str(file))
    assert apply_template(tokenizer, TALK) == "Be brief.\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is neither plain nor a readable file: No such file or directory"),
        (b"\xff\xfe\x00", "is neither plain nor a readable file: not UTF-8 text"),
        (b"a\n{% for m in messages %}", "line 2: not a Jinja template: Unexpected end of template"),
        (b" \n", "is empty"),
    ],
)
def test_a_template_file_that_cannot_be_used(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "own.jinja"
    if content is not None:
        file.write_bytes(content)
    refused(f"{file}.* {message}", choose_template, tokenizer, str(file))
    refused("is neither plain nor a readable file: Is a directory", choose_template, tokenizer, str(tmp_path))


def test_the_pinned_date_and_special_tokens_belong_to_the_identity(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(template: str) -> str:
        tokenizer.chat_template = template
        return template_identity(tokenizer)

    plain, dated = "{{ messages }}", "{{ date_string }}"
    before = identity(plain), identity(dated)
    monkeypatch.setattr("extract.chat.template.PINNED_DATE", "2025-01-01")
    assert identity(plain) == before[0] != before[1] != identity(dated)
    tokenizer.eos_token = "<|user|>"
    assert identity(plain) != before[0]


def settled(tokenizer: PreTrainedTokenizerBase, template: str, **how: object) -> PreTrainedTokenizerBase:
    tokenizer = copy.copy(tokenizer)
    tokenizer.chat_template = template
    tokenizer.chat_template = choose_template(tokenizer, None, **how)  # type: ignore[arg-type]
    return tokenizer


def test_arguments_are_set_for_good_in_macros_loops_and_the_date(tokenizer: PreTrainedTokenizerBase) -> None:
    def said(**arguments: object) -> str:
        return apply_template(settled(tokenizer, SWITCHED, arguments=arguments), [LAST])

    assert said() == "user: why?\n >"
    assert said(enable_thinking=False) == "user: why?\n<no> >"
    assert said(enable_thinking=True) == said()
    assert said(level="a 'b'\n\\", enable_thinking=False) == "user: why?\n<no>a 'b'\n\\ >"
    assert said(level=[1, None]) == "user: why?\n[1, None] >"
    template = "{% macro m() %}{{ level }}{% endmacro %}{% for m_ in messages %}{{ level }}{% endfor %}{{ m() }}"
    assert apply_template(settled(tokenizer, template, arguments={"level": 2}), [LAST]) == "22"
    dated = settled(tokenizer, "{{ date_string }}", arguments={"date_string": "1 May"})
    assert apply_template(dated, [LAST]) == "1 May"


@pytest.mark.parametrize("how", [{}, {"system": "merge"}])
@pytest.mark.parametrize("start", ["", "{% set turns = messages %}"])
def test_the_arguments_can_be_read_back(tokenizer: PreTrainedTokenizerBase, how: dict[str, str], start: str) -> None:
    for arguments in ({}, {"enable_thinking": False}, {"level": "a 'b'\n\\", "enable_thinking": None}, {"level": [1]}):
        assert template_arguments(settled(tokenizer, start + SWITCHED, arguments=arguments, **how)) == arguments


@pytest.mark.parametrize("start", ["", "\n", "\n\n", "  ", "\n  {% if true %}{% endif %}", " {% if true %}{% endif %}"])
def test_nothing_but_what_was_asked_changes(tokenizer: PreTrainedTokenizerBase, start: str) -> None:
    template = start + TURNS + "{{ level }}"
    plain = apply_template(settled(tokenizer, template), [FIRST, REPLY, LAST])
    for how in ({"arguments": {"level": ""}}, {"system": "merge"}, {"system": "merge", "arguments": {"level": ""}}):
        assert apply_template(settled(tokenizer, template, **how), [FIRST, REPLY, LAST]) == plain


@pytest.mark.parametrize("name", ["enable_thinkng", "messages", "m.role", "add_generation_prompt", ""])
def test_an_argument_no_template_reads_is_refused(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    with pytest.raises(UserError, match=r"takes no argument '.*'; give one that occurs in the template"):
        settled(tokenizer, SWITCHED, arguments={name: True})


def test_every_template_of_a_tokenizer_with_several_is_settled(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = {"default": SWITCHED, "tool_use": "tools"}  # type: ignore[assignment]
    tokenizer.chat_template = choose_template(tokenizer, None, {"enable_thinking": False})
    assert apply_template(tokenizer, [LAST]).endswith("<no> >")


def test_a_refused_system_message_names_the_prompt_and_the_remedy(tokenizer: PreTrainedTokenizerBase) -> None:
    strict, prompt = settled(tokenizer, STRICT), Prompt("p7", (SYSTEM, LAST), "benign", "answer")
    refused(r"prompt 'p7': .*no system role; if it takes no system message, model\.system", render, strict, prompt)
    with pytest.raises(UserError, match=r"roles must alternate$"):  # no remedy that is taken already
        render(settled(tokenizer, "{{ raise_exception('roles must alternate') }}", system="merge"), prompt)


def test_a_system_message_is_merged_into_the_next_user_turn(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    merging = settled(tokenizer, STRICT, system="merge")
    assert apply_template(merging, [SYSTEM, LAST]) == "user: Be brief.\n\nwhy?\n>"
    talk = [SYSTEM, FIRST, REPLY, LAST]
    assert apply_template(merging, talk) == "user: Be brief.\n\nwho are you?\nassistant: a model\nuser: why?\n>"
    assert apply_template(merging, [SYSTEM, SYSTEM, LAST]) == "user: Be brief.\n\nBe brief.\n\nwhy?\n>"
    prompt = Prompt("p", (SYSTEM, LAST), "benign", "answer")
    rendered = render(merging, prompt)
    assert merging.decode([rendered.token_ids[i] for i in rendered.roles["inst_mean"]]).strip() == "why?"
    assert remarks([prompt], [rendered]) == []
    (remark,) = remarks([prompt], [rendered], merged=True)
    assert remark.startswith("1 of 1 prompts: the system message is at the start of the next user turn (model.system: ")


def test_each_way_has_an_identity_of_its_own(tokenizer: PreTrainedTokenizerBase) -> None:
    ways = ({}, {"system": "merge"}, {"arguments": {"level": 1}}, {"arguments": {"level": 2}},
            {"arguments": {"enable_thinking": False}})  # fmt: skip
    assert len({template_identity(settled(tokenizer, SWITCHED, **way)) for way in ways}) == len(ways)
    assert choose_template(settled(tokenizer, SWITCHED), None) == SWITCHED
