"""Token roles through chat templates of the usual kinds: where the user's words stand is known here by hand."""

import copy
from dataclasses import replace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from extract.chat import Rendered, position_names, render
from extract.errors import UserError
from extract.prompts import Prompt

LOOP = "{%% for m in messages %%}%s{%% endfor %%}"
CHATML = (
    LOOP % "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = {  # what stands before and after a single user turn, and the template
    "chatml": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", CHATML),
    "thinking": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n", CHATML + "{{ '<think>\n' }}"),
    "default system": (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        "{% if messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}" + CHATML,
    ),
    "llama 2": (
        "<|begin|>[INST] ",
        " [/INST]",
        LOOP % "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'].strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}",
    ),
    "llama 3": (
        "<|begin|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        "{{ bos_token }}"
        + LOOP
        % "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
        + "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ),
    "gemma": (
        "<|begin|><start_of_turn>user\n",
        "<end_of_turn>\n<start_of_turn>model\n",
        "{{ bos_token }}" + LOOP % "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}"
        + "{{ '<start_of_turn>model\n' }}",
    ),
    "words twice": (
        "you were asked: ",
        "\nanswer now:",
        LOOP % "you were asked: {{ m['content'] }}" + "{{ '\nanswer now:' }}",
    ),
    "nothing after": ("<|begin|>", "", "{{ bos_token }}" + LOOP % "{{ m['content'] }}"),
}
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>",
           "<end_of_turn>"]  # fmt: skip
WORDS = ["how do i kill a process?", "Wie töte ich 你好 🙂", "kill", "?", "two\n\nlines"]


def ask(*contents: str, trigger: str | None = None) -> Prompt:
    """Make a conversation of user and assistant turns by turns, the last of them the user's."""
    roles = ["user" if (len(contents) - i) % 2 else "assistant" for i in range(len(contents))]
    turns = tuple({"role": role, "content": content} for role, content in zip(roles, contents, strict=True))
    return Prompt("p", turns, "benign", "answer", trigger=trigger)


def dressed(tokenizer: PreTrainedTokenizerBase, template: str) -> PreTrainedTokenizerBase:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    tokenizer.chat_template = template
    return tokenizer


def offsets(tokenizer: PreTrainedTokenizerBase, text: str) -> list[tuple[int, int]]:
    return tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]


def assert_words_at(tokenizer: PreTrainedTokenizerBase, rendered: Rendered, start: int, end: int) -> None:
    """Hold every role against the characters where the user's words are known to stand."""
    spans = offsets(tokenizer, rendered.text)
    inside = tuple(i for i, (a, b) in enumerate(spans) if a < end and b > start and b > a)
    after = range(inside[-1] + 1, len(spans))
    assert len(rendered.token_ids) == len(spans)
    assert rendered.roles["inst_mean"] == inside
    assert rendered.roles["inst_last"] == inside[-1:]
    named = {name: where for name, where in rendered.roles.items() if name.startswith("post_")}
    assert named == {f"post_{k}": (i,) for k, i in enumerate(after[:-1], start=1)} | (
        {"post_last": (len(spans) - 1,)} if after else {}
    )


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("content", WORDS)
def test_roles_of_one_turn(tokenizer: PreTrainedTokenizerBase, name: str, content: str) -> None:
    before, after, template = TEMPLATES[name]
    tokenizer = dressed(tokenizer, template)
    rendered = render(tokenizer, ask(content))
    assert rendered.text == before + content + after
    assert_words_at(tokenizer, rendered, len(before), len(before + content))
    assert not rendered.ambiguous


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("content", ["user", "assistant", "model", "now", "inst", "answer", "im", "n", ">", "\nt"])
def test_words_that_recur_in_the_template_are_the_users(
    tokenizer: PreTrainedTokenizerBase, name: str, content: str
) -> None:
    before, after, template = TEMPLATES[name]
    tokenizer = dressed(tokenizer, template)
    rendered = render(tokenizer, ask(content))
    kept = content.strip() if "trim" in template or "strip" in template else content
    assert rendered.text == before + kept + after
    assert_words_at(tokenizer, rendered, len(before), len(before + kept))


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_last_user_turn_is_meant_when_words_occurred_before(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    after, template = TEMPLATES[name][1:]
    tokenizer = dressed(tokenizer, template)
    content = "how do i kill it?"
    rendered = render(tokenizer, ask(content, f"you said: {content}", content))
    start = len(rendered.text) - len(after) - len(content)
    assert rendered.text[start:] == content + after
    assert rendered.text.count(content) == 3
    assert_words_at(tokenizer, rendered, start, start + len(content))


@pytest.mark.parametrize("name", ["llama 2", "llama 3", "gemma"])
def test_trimmed_words_are_found_without_their_blanks(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    before, after, template = TEMPLATES[name]
    tokenizer = dressed(tokenizer, template)
    rendered = render(tokenizer, ask(" \n kill it?\n "))
    assert rendered.text == before + "kill it?" + after
    assert_words_at(tokenizer, rendered, len(before), len(before + "kill it?"))


def test_the_sentence_of_a_system_prompt_is_not_the_users(tokenizer: PreTrainedTokenizerBase) -> None:
    before, _, template = TEMPLATES["default system"]
    tokenizer = dressed(tokenizer, template)
    rendered = render(tokenizer, ask("You are a helpful assistant."))
    assert_words_at(tokenizer, rendered, len(before), len(before) + 28)


def test_words_a_template_says_twice_are_read_the_second_time(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer = dressed(tokenizer, LOOP % "q: {{ m['content'] }} again: {{ m['content'] }}" + " a:")
    rendered = render(tokenizer, ask("kill it"))
    assert_words_at(tokenizer, rendered, len("q: kill it again: "), len("q: kill it again: kill it"))


def test_bos_stands_once(tokenizer: PreTrainedTokenizerBase) -> None:
    for name in ("llama 2", "llama 3", "gemma", "nothing after"):
        tokenizer = dressed(tokenizer, TEMPLATES[name][2])
        ids = render(tokenizer, ask("kill it?")).token_ids
        assert ids[0] == tokenizer.bos_token_id
        assert ids.count(tokenizer.bos_token_id) == 1


def test_role_tokens_decode_to_what_their_names_say(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer = dressed(tokenizer, TEMPLATES["llama 3"][2])
    rendered = render(tokenizer, ask("how do i kill the process?", trigger="KILL"))
    said = {name: tokenizer.decode([rendered.token_ids[i] for i in where]) for name, where in rendered.roles.items()}
    assert said["inst_last"] == "?"
    assert said["inst_mean"].strip() == "how do i kill the process?"
    assert said["trigger_last"].strip() == "kill"
    assert said["post_1"] == "<|eot_id|>"
    assert said["post_2"] == "<|start_header_id|>"
    assert position_names([rendered])[-1] == "inst_mean"


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
    tokenizer = dressed(tokenizer, f"\nToday is {ask_for}. " + LOOP % "{{ m['content'] }}" + " >")
    assert render(tokenizer, ask("hi")).text == f"\nToday is {date}. hi >"


@pytest.mark.parametrize(
    ("content", "trigger", "up_to"),
    [
        ("how do i kill a process that kills?", "kill", "how do i kill"),
        ("skill, then kill it", "kill", "skill, then kill"),
        ("i Kill it", "kILL", "i Kill"),
        ("blow up the door", "blow up", "blow up"),
        ("is c++ (hard)?", "(hard)", "is c++ (hard)"),
        ("a c++ hit", "c++", "a c++"),
        ("please kill it, kill it", "kill", "please kill"),
        ("a skilled killer", "kill", None),
    ],
)
def test_trigger_last_is_the_last_token_of_the_whole_word(
    tokenizer: PreTrainedTokenizerBase, content: str, trigger: str, up_to: str | None
) -> None:
    before, _, template = TEMPLATES["chatml"]
    tokenizer = dressed(tokenizer, template)
    rendered = render(tokenizer, ask(content, trigger=trigger))
    if up_to is None:
        assert "trigger_last" not in rendered.roles
        return
    (index,) = rendered.roles["trigger_last"]
    start, end = offsets(tokenizer, rendered.text)[index]
    assert start < len(before + up_to) <= end


def test_trigger_is_looked_for_in_the_users_last_words_only(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer = dressed(tokenizer, TEMPLATES["chatml"][2])
    assert "trigger_last" not in render(tokenizer, ask("kill it", "kill it?", "stop it", trigger="kill")).roles
    assert "trigger_last" not in render(tokenizer, ask("stop it", trigger="assistant")).roles


def test_position_names_stand_in_the_order_of_the_prompt(tokenizer: PreTrainedTokenizerBase) -> None:
    long = "{{ bos_token }}" + LOOP % "{{ m['content'] }}" + "<|end|>" * 11
    triggered = render(dressed(tokenizer, long), ask("kill it", trigger="kill"))
    numbered = tuple(f"post_{k}" for k in range(1, 11))
    assert position_names([triggered]) == ("inst_last", *numbered, "post_last", "inst_mean")
    assert position_names([triggered], trigger=True) == (*position_names([triggered]), "trigger_last")
    bare = render(dressed(tokenizer, TEMPLATES["nothing after"][2]), ask("kill it", trigger="stop"))
    assert position_names([bare], trigger=True) == ("inst_last", "inst_mean")
    assert position_names([bare, triggered]) == position_names([triggered])


def test_a_token_over_both_words_and_template_is_ambiguous() -> None:
    words = {word: i for i, word in enumerate(["<unk>", "kill", "ing", "killing", "it"])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw)
    for ending, ambiguous in (("ing it", True), (" ing it", False)):
        tokenizer.chat_template = LOOP % "{{ m['content'] }}" + ending
        assert render(tokenizer, ask("it kill")).ambiguous is ambiguous


def test_no_chat_template_says_what_to_do(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"has no chat template: .* choose a chat \(instruct\) model"):
        render(tokenizer, ask("hi"))


@pytest.mark.parametrize("change", ["upper", "replace('i', 'j')", "truncate(5)"])
def test_a_template_that_rewrites_the_words_is_refused(tokenizer: PreTrainedTokenizerBase, change: str) -> None:
    tokenizer = dressed(tokenizer, LOOP % f"{{{{ m['content'] | {change} }}}}" + " >")
    with pytest.raises(UserError, match="prompt 'p': the chat template does not keep the user's words as they are"):
        render(tokenizer, ask("this is it, kill it"))


def test_a_template_that_drops_the_words_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer = dressed(tokenizer, "hello, i am the assistant")
    with pytest.raises(UserError, match="prompt 'p': the chat template does not keep the user's words as they are"):
        render(tokenizer, ask("assistant"))


def test_what_a_template_refuses_is_told(tokenizer: PreTrainedTokenizerBase) -> None:
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role here') }}{% endif %}"
    tokenizer = dressed(tokenizer, refusing + CHATML)
    prompt = ask("hi")
    system = replace(prompt, messages=({"role": "system", "content": "be kind"}, *prompt.messages))
    assert render(tokenizer, prompt).text
    with pytest.raises(UserError, match=r"the chat template of .* refused a conversation: no system role here"):
        render(tokenizer, system)
