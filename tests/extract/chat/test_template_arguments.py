"""A template with fixed arguments and a fixed treatment of system messages writes the same for every caller."""

import copy

import pytest
from transformers import PreTrainedTokenizerBase

from extract.chat.render import remarks, render
from extract.chat.template import apply_template, choose_template, template_identity
from extract.errors import UserError
from extract.prompts.prompt import Prompt

TURNS = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
SWITCHED = TURNS + "{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}{{ level }} >"
STRICT = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TURNS + ">"
SYSTEM, FIRST, REPLY, LAST = (
    {"role": role, "content": content}
    for role, content in (("system", " Be brief.\n"), ("user", "who are you?"), ("assistant", "a model"),
                          ("user", "why?"))
)  # fmt: skip


def settled(tokenizer: PreTrainedTokenizerBase, template: str, **how: object) -> PreTrainedTokenizerBase:
    tokenizer = copy.copy(tokenizer)
    tokenizer.chat_template = template
    tokenizer.chat_template = choose_template(tokenizer, None, **how)  # type: ignore[arg-type]
    return tokenizer


def test_arguments_are_set_for_good(tokenizer: PreTrainedTokenizerBase) -> None:
    def said(**arguments: object) -> str:
        return apply_template(settled(tokenizer, SWITCHED, arguments=arguments), [LAST])

    assert said() == "user: why?\n >"
    assert said(enable_thinking=False) == "user: why?\n<no> >"
    assert said(enable_thinking=True) == said()
    assert said(level="a 'b'\n\\", enable_thinking=False) == "user: why?\n<no>a 'b'\n\\ >"
    assert said(level=[1, None]) == "user: why?\n[1, None] >"


def test_an_argument_reaches_macros_loops_and_the_date(tokenizer: PreTrainedTokenizerBase) -> None:
    template = "{% macro m() %}{{ level }}{% endmacro %}{% for m_ in messages %}{{ level }}{% endfor %}{{ m() }}"
    assert apply_template(settled(tokenizer, template, arguments={"level": 2}), [LAST]) == "22"
    dated = settled(tokenizer, "{{ date_string }}", arguments={"date_string": "1 May"})
    assert apply_template(dated, [LAST]) == "1 May"


@pytest.mark.parametrize(
    "start", ["", "\n", "\n\n", "  ", "\n  {% if true %}{% endif %}", "  {% if true %}{% endif %}"]
)
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
    with pytest.raises(UserError, match=r"prompt 'p7': .*no system role; if it takes no system message, model\.system"):
        render(strict, prompt)
    with pytest.raises(UserError, match=r"roles must alternate$"):  # no remedy that is taken already
        render(settled(tokenizer, "{{ raise_exception('roles must alternate') }}", system="merge"), prompt)


def test_a_system_message_is_merged_into_the_next_user_turn(tokenizer: PreTrainedTokenizerBase) -> None:
    merging = settled(tokenizer, STRICT, system="merge")
    assert apply_template(merging, [SYSTEM, LAST]) == "user: Be brief.\n\nwhy?\n>"
    talk = [SYSTEM, FIRST, REPLY, LAST]
    assert apply_template(merging, talk) == "user: Be brief.\n\nwho are you?\nassistant: a model\nuser: why?\n>"
    assert apply_template(merging, [SYSTEM, SYSTEM, LAST]) == "user: Be brief.\n\nBe brief.\n\nwhy?\n>"


def test_the_users_words_are_found_after_a_merged_system_message(tokenizer: PreTrainedTokenizerBase) -> None:
    merging, prompt = settled(tokenizer, STRICT, system="merge"), Prompt("p", (SYSTEM, LAST), "benign", "answer")
    rendered = render(merging, prompt)
    assert merging.decode([rendered.token_ids[i] for i in rendered.roles["inst_mean"]]).strip() == "why?"
    assert remarks([prompt], [rendered]) == []
    assert remarks([prompt], [rendered], merged=True) == [
        "1 of 1 prompts: the system message is at the start of the next user turn (model.system: merge), for "
        "example 'p'"
    ]


def test_each_way_has_an_identity_of_its_own(tokenizer: PreTrainedTokenizerBase) -> None:
    ways = ({}, {"system": "merge"}, {"arguments": {"level": 1}}, {"arguments": {"level": 2}},
            {"arguments": {"enable_thinking": False}})  # fmt: skip
    assert len({template_identity(settled(tokenizer, SWITCHED, **way)) for way in ways}) == len(ways)
    assert choose_template(settled(tokenizer, SWITCHED), None) == SWITCHED
