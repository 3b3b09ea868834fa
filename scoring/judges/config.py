"""Configuration of a judge: `rules`, or a YAML file that describes a classifier, a local model or an endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from extract.errors import UserError
from extract.shipped import ROOT, named_yaml, resolve_shipped
from extract.yaml_file import Strict, as_model, read_yaml
from scoring.actions import Action

KNOWN = ROOT / "configs" / "judges"
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
        if isinstance(given, dict) and any(isinstance(label, bool) for label in given):
            raise ValueError("YAML reads yes, no, on and off as truth values; put the label in quotes")
        return {str(label): action for label, action in given.items()} if isinstance(given, dict) else given

    @field_validator("text")
    @classmethod
    def _names_what_there_is(cls, given: str | tuple[str, str]) -> str | tuple[str, str]:
        marks = {name for text in ([given] if isinstance(given, str) else given) for name in _MARK.findall(text)}
        if unknown := sorted(marks - {"prompt", "completion"}):
            raise ValueError(f"{{{unknown[0]}}} is unknown; expected {{completion}} or {{prompt}}")
        if "completion" not in marks:
            raise ValueError("it must contain {completion}; otherwise every completion gets the same judgement")
        return given


class EndpointConfig(Strict):
    """A model behind an OpenAI-compatible endpoint that judges by a rubric."""

    kind: Literal["endpoint"] = "endpoint"
    base_url: str  # including /v1
    model: str = Field(min_length=1)
    api_key_env: str | None = None  # the environment variable that holds the key; null where the server needs none
    rubric: str = RUBRIC  # a .md or .txt file, or the text itself
    known_answers: bool = False  # show the known answer, and let the model say whether the completion gives it
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

    def rubric_text(self) -> str:
        """Return the rubric's text, read from its file if `rubric` is a path, with what is said of known answers."""
        given = _text(self.rubric) if self.rubric.endswith((".md", ".txt")) and "\n" not in self.rubric else self.rubric
        return f"{given}\n\n{_text(KNOWN_ANSWER)}" if self.known_answers else given


class LocalConfig(Strict):
    """A small chat model whose activations a probe reads, beside the rules; a copy of its own."""

    kind: Literal["local"] = "local"
    model: str = "qwen2.5-coder-0.5b"  # the probe is of this model's weights, in any file that holds them
    revision: str | None = None
    device: str = "auto"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    token_budget: int | None = Field(None, ge=1)  # tokens in a batch: 1024 on a CPU, 16384 on a GPU


def _text(path: str) -> str:
    try:
        return resolve_shipped(Path(path)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"rubric {path} cannot be read: {getattr(error, 'strerror', error)}") from None


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
        raise UserError(f"{path}: {fault}; expected {' or '.join(_KINDS)}")
    return as_model(_KINDS[kind], raw, path)
