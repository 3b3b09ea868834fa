"""The request's schema: the supported fields of OpenAI's chat completions, and two thresholds; others are rejected."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails

from steering.dial import Asked, Dial, Kind, Threshold

# fields of OpenAI's requests and messages, and of servers like it, that this server does not have: the values besides
# null that change nothing, as no request has tools
NEUTRAL: dict[str, tuple[object, ...]] = {
    name: values
    for names, values in (
        ("logit_bias chat_template_kwargs mm_processor_kwargs vllm_xargs extra_body", ({},)),
        ("functions tool_calls stop_token_ids bad_words logits_processors documents", ([],)),
        ("echo ignore_eos use_beam_search early_stopping include_stop_str_in_output add_special_tokens", (False,)),
        ("continue_final_message return_token_ids return_tokens_as_token_ids continuous_usage_stats", (False,)),
        ("skip_special_tokens spaces_between_special_tokens add_generation_prompt", (True,)),
        ("min_p min_tokens top_logprobs top_a mirostat dry_multiplier xtc_probability", (0,)),
        ("no_repeat_ngram_size diversity_penalty", (0,)),
        ("repetition_penalty repeat_penalty length_penalty typical_p tfs_z best_of num_beams", (1,)),
        ("tool_choice function_call", ("none", "auto")),
        ("name suffix", ("",)),
        ("top_k top_n_sigma", (-1, 0)),
        ("parallel_tool_calls", (True, False)),
        ("modalities", (["text"],)),
        ("verbosity", ("medium",)),
        (
            "audio prediction reasoning_effort web_search_options tool_call_id json_schema image_url input_audio file",
            (),
        ),
        ("input_audio file guided_json guided_regex guided_choice guided_grammar structured_outputs chat_template", ()),
        ("prompt_logprobs allowed_token_ids truncate_prompt_tokens", ()),
    )
    for name in names.split()
}
IGNORED = "cache_salt priority prompt_cache_key prompt_cache_retention request_id safety_identifier service_tier store"
ABOUT_THRESHOLD = "at or above this probability; null: the dial's own, or its category's; off: the dial does nothing."
MAX_MESSAGES = 1024
MAX_CHOICES = 8

Text = Annotated[str, Field(pattern="")]  # a pattern rejects halves of surrogate pairs
AskedThreshold = Annotated[float, Field(ge=0, le=1)] | Literal["off"] | None
TokenCount = Annotated[int, Field(ge=1)] | None
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Zero = Annotated[float, Field(ge=0, le=0)] | None


def _is_false(value: bool) -> bool:
    if value:
        raise ValueError("only false is supported")
    return value


def _changes_nothing(name: str, value: object) -> bool:
    same = (value == one for one in NEUTRAL.get(name, ()) if isinstance(one, bool) == isinstance(value, bool))
    return name in NEUTRAL and (value is None or any(same))


class _Strict(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    ignored: ClassVar[frozenset[str]] = frozenset()  # fields without effect on the answer, whatever their value

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {k: value for k, value in given.items() if k not in cls.ignored and not _changes_nothing(k, value)}


class TextPart(_Strict):
    """A text part of a message."""

    ignored: ClassVar[frozenset[str]] = frozenset({"annotations", "cache_control"})

    type: Literal["text"]
    text: Text


_SAYS: JsonDict = {
    "anyOf": [  # the JSON schema of `Message._says_something`
        {"properties": {"role": {"const": "assistant"}}},
        {
            "required": ["content"],
            "properties": {
                "content": {
                    "anyOf": [
                        {"type": "string", "pattern": r"\S"},
                        {"type": "array", "contains": {"properties": {"text": {"pattern": r"\S"}}}},
                    ]
                }
            },
        },
    ]
}


class Message(_Strict):
    """One turn of the conversation; a thought of an earlier answer is ignored, as chat templates leave it out."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_SAYS)
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"annotations", "reasoning", "reasoning_content", "reasoning_details", "thinking", "thinking_blocks"}
    )

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(max_length=64)] | None = Field(
        None, validate_default=True, description="Text that is not blank; of an assistant's turn it may be blank."
    )
    refusal: Text | None = Field(None, description="What an assistant's turn without content says.")

    @field_validator("content")
    @classmethod
    def _says_something(cls, given: str | list[TextPart] | None, about: ValidationInfo) -> str | list[TextPart] | None:
        if about.data.get("role") not in (None, "assistant") and not _text(given).strip():
            raise ValueError("text must not be blank")
        return given

    def plain(self) -> dict[str, str]:
        """Return the turn as `role` and `content` for chat templates; developer is OpenAI's newer word for system."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": _text(self.content) or self.refusal or ""}


def _text(content: str | list[TextPart] | None) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content or ())


class StreamOptions(_Strict):
    """Options of a stream."""

    ignored: ClassVar[frozenset[str]] = frozenset({"include_obfuscation"})

    include_usage: bool | None = None


class ResponseFormat(_Strict):
    """The format of the answer: only text."""

    type: Literal["text"]


class AskedThresholds(_Strict):
    """The thresholds of a request."""

    normative_threshold: AskedThreshold = Field(None, description=f"Refuse {ABOUT_THRESHOLD}")
    epistemic_threshold: AskedThreshold = Field(None, description=f"Abstain {ABOUT_THRESHOLD}")

    def resolved(self, dials: Sequence[Dial]) -> dict[Kind, Threshold]:
        """Return the threshold of each dial; a ValueError names a kind that is asked for and has none."""
        asked: dict[Kind, Asked] = {"normative": self.normative_threshold, "epistemic": self.epistemic_threshold}
        present = {dial.kind for dial in dials}
        if absent := [kind for kind, value in asked.items() if value is not None and kind not in present]:
            raise ValueError(f"{absent[0]}_threshold: this server has no {absent[0]} dial")
        return {dial.kind: dial.resolved(asked[dial.kind]) for dial in dials}


class ChatRequest(AskedThresholds):
    """The body of POST /v1/chat/completions."""

    ignored: ClassVar[frozenset[str]] = frozenset(IGNORED.split())

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, given: Any) -> Any:
        """Reject bodies with very many fields, whose validation would take seconds."""
        metadata = given.get("metadata") if isinstance(given, dict) else None
        for field, value, most in (("a request", given, 64), ("metadata", metadata, 16)):
            if isinstance(value, dict) and len(value) > most:
                raise ValueError(f"{field} has {len(value)} fields; at most {most} are allowed")
        return given

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    token_readings: bool | None = Field(
        None,
        description="true: each choice also has what the dials' probes read at every token of the user's last turn "
        "and of the answer; it takes one forward pass more.",
    )
    max_completion_tokens: TokenCount = None
    max_tokens: TokenCount = Field(None, description="The older name of max_completion_tokens.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None, description="0, the default: greedy decoding, for which the thresholds were certified."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, description="Ignored.")
    metadata: dict[str, str] | None = Field(None, description="Ignored.")
    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    response_format: ResponseFormat | None = None
    logprobs: Annotated[bool, AfterValidator(_is_false), Field(json_schema_extra={"const": False})] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None

    @property
    def conversation(self) -> tuple[dict[str, str], ...]:
        return tuple(message.plain() for message in self.messages)

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def describe_error(errors: Sequence[ErrorDetails]) -> tuple[str, str]:
    """Return the wrong field and a one-line message: an unknown field first, then the most deeply nested one."""
    first = min(errors, key=lambda one: (one["type"] != "extra_forbidden", -len(list(_place(one)))))
    if first["type"] == "json_invalid":
        return "body", f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
    field = _field(first)
    if first["type"] == "extra_forbidden":
        if (neutral := NEUTRAL.get(str(first["loc"][-1]))) is not None:
            remedy = f", or give {' or '.join(map(json.dumps, neutral))}" if neutral else ""
            return field, f"{field}: this server does not honour this field; leave it out{remedy}"
        near = difflib.get_close_matches(str(first["loc"][-1]), _NAMES, n=1, cutoff=0.55)
        return field, f"{field}: unknown or unsupported field" + (f"; did you mean {near[0]}?" if near else "")
    messages = [str(one["msg"]).removeprefix("Value error, ") for one in errors if _field(one) == field]
    return field, f"{field}: {', or '.join(dict.fromkeys(text[:1].lower() + text[1:] for text in messages))}"


_NAMES = {
    name for model in (ChatRequest, Message, TextPart, StreamOptions, ResponseFormat) for name in model.model_fields
}


def _field(error: ErrorDetails) -> str:
    """Return a field's name such as messages[0].content."""
    return "".join(_place(error)).lstrip(".") or "body"


def _place(error: ErrorDetails) -> Iterator[str]:
    """Yield the steps of the path to a field, without pydantic's steps for alternative types."""
    steps = error["loc"][1:] if error["loc"][:1] == ("body",) else error["loc"]
    for i, step in enumerate(steps):
        if isinstance(step, int):
            yield f"[{step}]"
        elif step in _NAMES or (error["type"] == "extra_forbidden" and i == len(steps) - 1):
            yield f".{step[:64]}"
