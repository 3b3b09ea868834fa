"""Chat templates: the choice of one, its arguments, its identity, and the plain format for base models."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from extract.chat.render import render
from extract.chat.template import PLAIN_TEMPLATE, apply_template, choose_template, template_identity
from extract.errors import UserError
from extract.prompts.prompt import Prompt

LOOP = "{%% for m in messages %%}%s{%% endfor %%}"
HI = ({"role": "user", "content": "hi"},)
TALK = (
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": "who are you?\n"},
    {"role": "assistant", "content": " a model "},
    {"role": "user", "content": "why?"},
)


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


def test_a_template_is_given_what_it_reads(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        LOOP % "{{ m.content }}" + "{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}"
        " {{ date_string }}"
    )
    assert apply_template(tokenizer, HI) == "hi 26 Jul 2024"
    assert apply_template(tokenizer, HI, {"enable_thinking": False}) == "hi<no> 26 Jul 2024"
    assert apply_template(tokenizer, HI, {"date_string": "1 May"}) == "hi 1 May"
    rendered = render(tokenizer, Prompt("p", HI, "benign", "answer"), {"enable_thinking": False})
    assert rendered.text == "hi<no> 26 Jul 2024"


@pytest.mark.parametrize("name", ["enable_thinkng", "thinking", "tokenize", "messages", "add_generation_prompt"])
def test_an_argument_the_template_does_not_read_is_refused(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    tokenizer.chat_template = LOOP % "{{ m.content }}" + "{{ enable_thinking }}{{ add_generation_prompt }}"
    with pytest.raises(UserError, match=f"the chat template of .* takes no argument '{name}'; give one that occurs in"):
        apply_template(tokenizer, HI, {name: True})


def test_a_conversation_that_a_template_refuses_is_one_line(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = "{{ raise_exception('no system\nrole here') }}"
    with pytest.raises(UserError, match=r"^the chat template of .* refused a conversation: no system role here$"):
        apply_template(tokenizer, HI)
    tokenizer.chat_template = "{{ messages[0].content + 1 }}"
    with pytest.raises(UserError, match=r"refused a conversation: can only concatenate str"):
        apply_template(tokenizer, HI)


def test_identity_changes_with_all_that_changes_the_text(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(template: str, arguments: dict | None = None) -> str:
        tokenizer.chat_template = template
        return template_identity(tokenizer, arguments)

    plain, dated, thinking = "{{ messages }}", "{{ date_string }}", "{{ enable_thinking }}"
    before = [identity(plain), identity(dated), identity(thinking), identity(thinking, {"enable_thinking": True}),
              identity(thinking, {"enable_thinking": False})]  # fmt: skip
    assert len(set(before)) == 5
    assert before[:2] == [identity(plain, {}), identity(dated)]
    monkeypatch.setattr("extract.chat.template.PINNED_DATE", "2025-01-01")
    assert identity(plain) == before[0]
    assert identity(dated) != before[1]
    tokenizer.eos_token = "<|user|>"
    assert identity(plain) != before[0]


def test_a_missing_template_names_the_remedy(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = None
    message = (
        r"has no chat template; choose a chat \(instruct\) model, or .* model\.template=plain .* or a \.jinja file"
    )
    for fails in (lambda: choose_template(tokenizer, None), lambda: apply_template(tokenizer, HI),
                  lambda: template_identity(tokenizer)):  # fmt: skip
        with pytest.raises(UserError, match=message):
            fails()


def test_a_template_of_its_own_is_left_alone(tokenizer: PreTrainedTokenizerBase) -> None:
    assert choose_template(tokenizer, None) == tokenizer.chat_template


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


def test_plain_may_be_chosen_over_a_template_of_its_own(tokenizer: PreTrainedTokenizerBase) -> None:
    assert choose_template(tokenizer, "plain") == PLAIN_TEMPLATE


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
    with pytest.raises(UserError, match=message) as caught:
        choose_template(tokenizer, str(file))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="is neither plain nor a readable file: Is a directory"):
        choose_template(tokenizer, str(tmp_path))
