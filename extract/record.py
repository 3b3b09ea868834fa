"""Typed results: frozen values that are written to JSON and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from extract.atomic_write import write_json
from extract.errors import UserError


class Record(BaseModel):
    """A result of a stage, or a part of it.

    Only given fields are written: a field left at its default is not in the file. Unknown keys are ignored when a file
    is read, so that files of other versions still load.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without the fields left at their default."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def write(self, path: Path) -> None:
        """Write JSON atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `write` wrote; raises UserError if it is missing, no JSON, or another result."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise UserError(f"{path} cannot be read ({reason}); run again") from None


class NotApplicable(Record):
    """A question that is not applicable, with the reason: `{"applicable": false, "reason": …}`."""

    applicable: Literal[False]
    reason: str


def not_applicable(reason: str) -> NotApplicable:
    """Return the result "not applicable" with its reason."""
    return NotApplicable(applicable=False, reason=reason)
