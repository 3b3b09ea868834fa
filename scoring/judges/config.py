"""Configuration of a judge: `rules`, or a YAML file that describes a classifier, a local model or an endpoint.

A judge of delivery, which reads answers to harmful prompts, has a YAML file of its own (configs/delivery).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from extract.errors import UserError
from extract.shipped import ROOT, named_yaml, resolve_shipped
from extract.yaml_file import Strict, as_model, read_yaml
from scoring.actions import Action, Delivered

KNOWN = ROOT / "configs" / "judges"
DELIVERY = ROOT / "configs" / "delivery"
RUBRIC = "configs/judges/rubric.md"
KNOWN_ANSWER = "configs/judges/known_answer.md"  # what the rubric goes on with where `known_answers` is set
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?(/[^\s@?#]*)?")
_MARK = re.compile(r"\{(\w*)\}")


class ClassifierConfig(Strict):
    """A Hugging Face text classifier and the action of each of its labels."""

    kind: Literal["classifier"] = "classifier"
    model: str = Field(min_length=1)  # a directory or a hub id
    revision: str | None = None
    device: str = "auto"
    batch_size: int = Field(32, ge=1)  # texts of max_tokens in a batch; more of shorter ones
    max_tokens: int | None = Field(None, ge=8)  # longer texts are cut; null: the model's context, at most 512
    text: str | tuple[str, str] = "{completion}"  # the input: a template, or two templates for a pair of texts
    actions: dict[str, Action | None]  # classifier label: our action, or null where the label implies none
    threshold: float | None = Field(None, ge=0, le=1)  # a label less probable than this does not count

    @field_validator("actions", mode="before")
    @classmethod
    def _labels_are_text(cls, given: object) -> object:
        return _texts_to(given)

    @field_validator("text")
    @classmethod
    def _names_what_there_is(cls, given: str | tuple[str, str]) -> str | tuple[str, str]:
        marks = {name for text in ([given] if isinstance(given, str) else given) for name in _MARK.findall(text)}
        if unknown := sorted(marks - {"prompt", "completion"}):
            raise ValueError(f"{{{unknown[0]}}} is unknown; expected {{completion}} or {{prompt}}")
        if "completion" not in marks:
            raise ValueError("it must contain {completion}; otherwise every completion gets the same judgement")
        return given


class Connection(Strict):
    """A model behind an OpenAI-compatible endpoint, and how it is asked."""

    base_url: str  # including /v1
    model: str = Field(min_length=1)
    api_key_env: str | None = None  # the environment variable that holds the key; null where the server needs none
    temperature: float | None = Field(0.0, ge=0)  # null: not sent (also for seed and max_tokens)
    max_tokens: int | None = Field(512, ge=1)  # of the reply
    seed: int | None = 0
    extra_body: dict[str, object] = {}  # further keys of the request
    json_mode: bool = True  # request response_format json_object; dropped if the server refuses it
    concurrency: int = Field(8, ge=1, le=256)  # requests in flight at once
    timeout_s: float = Field(60, gt=0)
    retries: int = Field(4, ge=0)  # of a failed request, and of an unreadable reply
    price_per_million_input: float | None = Field(None, ge=0)  # for the cost in the record, in any currency
    price_per_million_output: float | None = Field(None, ge=0)

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, given: str) -> str:
        if not _ADDRESS.fullmatch(given):
            raise ValueError("it must be an address such as http://localhost:8000/v1, without a user name or key")
        return given.rstrip("/")

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, given: str | None) -> str | None:
        if given is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", given):  # never printed: it may be a key
            raise ValueError("it must be the name of an environment variable, such as OPENAI_API_KEY, not a key")
        return given


class EndpointConfig(Connection):
    """A model behind an OpenAI-compatible endpoint that judges by a rubric."""

    kind: Literal["endpoint"] = "endpoint"
    rubric: str = RUBRIC  # a .md or .txt file, or the text itself
    known_answers: bool = False  # show the known answer, and let the model say whether the completion gives it

    def rubric_text(self) -> str:
        """Return the rubric's text, read from its file if `rubric` is a path, with what is said of known answers."""
        given = text_of(self.rubric)
        return f"{given}\n\n{text_of(KNOWN_ANSWER)}" if self.known_answers else given


class DeliveryConfig(Connection):
    """A model behind an OpenAI-compatible endpoint that says whether an answer delivers the harm that was asked for.

    It is asked in one of three ways: by a `rubric` whose scores it replies; by a `text` that it is sent; or, with
    neither, by the conversation itself, as a guard with a chat template of its own reads it.
    """

    kind: Literal["delivery"] = "delivery"
    rubric: str | None = None  # a .md or .txt file, or the text itself
    text: str | None = None  # a template with {prompt} and {completion}, or its .md or .txt file
    json_mode: bool = False
    chat: bool = True  # false: `text` is completed as it is, without the server's chat template
    reply: str = ""  # a pattern; its first group is the verdict
    means: dict[str, Delivered | None] = {}  # verdict in lower case: what was delivered; null where it does not say

    @field_validator("means", mode="before")
    @classmethod
    def _verdicts_are_text(cls, given: object) -> object:
        given = _texts_to(given)
        return {name.lower(): value for name, value in given.items()} if isinstance(given, dict) else given

    @field_validator("reply")
    @classmethod
    def _has_a_group(cls, given: str) -> str:
        try:
            groups = re.compile(given).groups
        except re.error as error:
            raise ValueError(f"it is no pattern: {error}") from None
        if given and not groups:
            raise ValueError("it must have a group in parentheses, which is the verdict: (yes|no)")
        return given

    @model_validator(mode="after")
    def _can_be_read(self) -> DeliveryConfig:
        if self.rubric is not None and (self.text is not None or self.reply or self.means):
            raise ValueError("a rubric has scores as its reply; leave out text, reply and means, or the rubric")
        if self.rubric is None and not (self.reply and self.means):
            raise ValueError("reply and means say how a reply is read; give both, or a rubric")
        if not self.chat and self.text is None:
            raise ValueError("chat is false, and there is no text to complete; give text")
        return self


class LocalConfig(Strict):
    """A small chat model whose activations a probe reads, beside the rules; a copy of its own."""

    kind: Literal["local"] = "local"
    model: str = "qwen2.5-coder-0.5b"  # the probe is of this model's weights, in any file that holds them
    revision: str | None = None
    device: str = "auto"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    token_budget: int | None = Field(None, ge=1)  # tokens in a batch: 1024 on a CPU, 16384 on a GPU
    ask_below: float = Field(0.9, ge=0, le=1)  # the model reads what the rules judge with a lower probability


def text_is(given: str) -> bool:
    """Return whether this is a text itself, not the name of a file with one."""
    return "\n" in given or not given.endswith((".md", ".txt"))


def text_of(given: str) -> str:
    """Return a text, or that of the .md or .txt file that it names."""
    if text_is(given):
        return given
    try:
        return resolve_shipped(Path(given)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{given} cannot be read: {getattr(error, 'strerror', error)}") from None


def _texts_to(given: object) -> object:
    if isinstance(given, dict) and any(isinstance(name, bool) for name in given):
        raise ValueError("YAML reads yes, no, on and off as truth values; put them in quotes")
    return {str(name): value for name, value in given.items()} if isinstance(given, dict) else given


JudgeConfig = ClassifierConfig | EndpointConfig | LocalConfig
_KINDS: Mapping[str, type[JudgeConfig]] = {
    "classifier": ClassifierConfig,
    "endpoint": EndpointConfig,
    "local": LocalConfig,
}


def load_judge(given: str) -> JudgeConfig:
    """Read the configuration of a judge: a YAML file, or the name of a shipped one."""
    path = named_yaml(given, KNOWN, "judge", ["rules"])
    raw = read_yaml(path, "judge")
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        fault = "kind is missing" if kind is None else f"kind is {kind!r}"
        raise UserError(f"{path}: {fault}; expected {' or '.join(_KINDS)} (one of delivery is given as --delivery)")
    return as_model(_KINDS[kind], raw, path)


def judge_name(kind: str, model: object = None) -> str:
    """Return what a judge is called where its rates are shown."""
    return f"{kind} ({model})" if model else kind


def name_of(given: str) -> str:
    """Return the name of a judge by its configuration; what is given where that cannot be read."""
    if given == "rules":
        return given
    try:
        config = load_judge(given)
    except UserError:
        return given
    return judge_name(config.kind, config.model)


def load_delivery(given: str) -> DeliveryConfig:
    """Read the configuration of a judge of delivery: a YAML file, or the name of a shipped one."""
    path = named_yaml(given, DELIVERY, "judge of delivery")
    raw = read_yaml(path, "judge of delivery")
    if raw.get("kind") != "delivery":
        raise UserError(f"{path}: kind is {raw.get('kind')!r}; expected delivery (one of actions is given as --judge)")
    return as_model(DeliveryConfig, raw, path)
