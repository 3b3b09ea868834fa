"""What a request may ask: OpenAI's chat completions as far as they are honoured here, and two thresholds.

A field that would change the answer and is not honoured is refused, unless it asks for nothing; so is an unknown one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import ErrorDetails

from steering.dial import Kind

MAX_MESSAGES = 1024
MAX_CHOICES = 8

Text = Annotated[str, Field(pattern=r"\S", description="At least one character that is no blank.")]
Threshold = Annotated[float, Field(ge=0, le=1)] | Literal["off"] | None
TokenCount = Annotated[int, Field(ge=1)] | None
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Zero = Annotated[float, Field(ge=0, le=0)] | None


def _is_false(value: bool) -> bool:
    if value:
        raise ValueError("only false is honoured here")
    return value


def _value_of(given: Any, field: str) -> Any:
    return given.get(field) if isinstance(given, dict) else None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class TextPart(_Strict):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class Message(_Strict):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(min_length=1, max_length=64)]

    def plain(self) -> dict[str, str]:
        """Return it as chat templates take it; developer is OpenAI's newer word for system."""
        said = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": said}


class StreamOptions(_Strict):
    """What a stream holds beside the answer."""

    include_usage: bool | None = None


class ResponseFormat(_Strict):
    """Only plain text is written."""

    type: Literal["text"]


class ChatRequest(_Strict):
    """The body of POST /v1/chat/completions."""

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, given: Any) -> Any:
        """Refuse what would take seconds to find all the faults of."""
        for field, value, most in (("a request", given, 64), ("metadata", _value_of(given, "metadata"), 16)):
            if isinstance(value, dict) and len(value) > most:
                raise ValueError(f"{field} has {len(value)} fields; at most {most} are read")
        return given

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    normative_threshold: Threshold = Field(
        None, description="Refuse at or above this probability; null: the dial's own; off: leave this row alone."
    )
    epistemic_threshold: Threshold = Field(
        None, description="Abstain at or above this probability; null: the dial's own; off: leave this row alone."
    )
    max_completion_tokens: TokenCount = None
    max_tokens: TokenCount = Field(None, description="The older name of max_completion_tokens.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None, description="0, the default, takes the likeliest token: what the thresholds were certified for."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, description="Changes nothing.")
    metadata: dict[str, str] | None = Field(None, description="Changes nothing.")
    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    response_format: ResponseFormat | None = None
    logprobs: Annotated[bool, AfterValidator(_is_false), Field(json_schema_extra={"const": False})] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None

    @property
    def token_limit(self) -> int | None:
        """How long an answer may be, if the request says it."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the texts an answer ends before."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def thresholds(self) -> dict[Kind, float | Literal["off"] | None]:
        """Return what is asked of each dial."""
        return {"normative": self.normative_threshold, "epistemic": self.epistemic_threshold}


def describe_error(errors: Sequence[ErrorDetails]) -> tuple[str, str]:
    """Return the field that is wrong and one line about it, of pydantic's list of errors.

    An unknown field goes first: mostly it is the missing one, mistyped; then what lies deepest, for it is told closest.
    Where a field may be several things, all that is wrong with it is told.
    """
    first = min(errors, key=lambda one: (one["type"] != "extra_forbidden", -len(list(_place(one)))))
    if first["type"] == "json_invalid":
        return "body", f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
    field = _field(first)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), _NAMES, n=1, cutoff=0.55)
        return field, f"{field}: no such field is honoured here" + (f"; did you mean {near[0]}?" if near else "")
    about = dict.fromkeys(_message(one) for one in errors if _field(one) == field)
    return field, f"{field}: {', or '.join(about)}"


def _message(error: ErrorDetails) -> str:
    if error["type"] == "string_pattern_mismatch":
        return "there must be more than blanks"
    said = str(error["msg"]).removeprefix("Value error, ")
    return said[:1].lower() + said[1:]


_NAMES = {name for model in (ChatRequest, Message, TextPart, StreamOptions, ResponseFormat)
          for name in model.model_fields}  # fmt: skip


def _field(error: ErrorDetails) -> str:
    """Return a field's name such as messages[0].content."""
    return "".join(_place(error)).lstrip(".") or "body"


def _place(error: ErrorDetails) -> Iterator[str]:
    """Yield the steps to a field: pydantic's, less the alternatives it tried on the way."""
    steps = error["loc"][1:] if error["loc"][:1] == ("body",) else error["loc"]
    for i, step in enumerate(steps):
        if isinstance(step, int):
            yield f"[{step}]"
        elif step in _NAMES or (error["type"] == "extra_forbidden" and i == len(steps) - 1):
            yield f".{step[:64]}"
