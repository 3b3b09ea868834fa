"""Descriptions of public data sets in YAML: files, columns and licence. A new set needs no code.

A set is `configs/datasets/NAME.yaml`; copy a similar one (xstest.yaml: one CSV file with pairs; arditi.yaml: several
files; cast.yaml: several prompts in one row; coconot.yaml: nested JSON, and a hub repository with configs; crepe.yaml:
a prompt inside a frame). The models
below define its keys. extract/prompts/dataset.py reads the data.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from pydantic import Field, ValidationError

from extract.errors import UserError
from extract.prompts.columns import Column, ColumnMapping, Strict, Value
from extract.prompts.prompt import Label
from extract.shipped import ROOT
from extract.yaml_file import explain, read_yaml

KNOWN = ROOT / "configs" / "datasets"


class Split(Strict):
    """Configuration and split of a part in the hub repository."""

    config: str | None = None
    split: str


class Part(ColumnMapping):
    """Rows with one mapping; its columns and constants override those of the set."""

    file: str  # the file's name in the set's directory
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")  # of the file that this description was tested on
    optional: bool = False  # the file may be missing
    at: str = ""  # where the rows are in a JSON file: keys joined by points, `*` for every key (rows.py)
    hub: Split | None = None  # None: the part is read from files only
    only: dict[str, tuple[str, ...]] = {}  # of the rows only those with one of these values in each of these columns
    distinct: bool = False  # skip a prompt that an earlier row of the part gives with the same label
    rows: dict[Label, int] = Field(default_factory=dict)  # number of prompts per label in the published file


class Description(ColumnMapping):
    """A public set. Its name is the `source` of its prompts and the prefix of their ids and pairs."""

    name: str  # the YAML file's name
    about: str
    licence: str
    url: str  # where to download it
    citation: str
    hub: str | None = None  # repository on the Hugging Face hub
    untested: bool = False  # the description was never tried on the set's own files
    parts: dict[str, Part] = Field(min_length=1)

    def fields(self, part: Part) -> dict[str, Column | Value]:
        """Return the source of each field of a part's prompts."""
        return {**self.columns, **self.constants, **part.columns, **part.constants}

    def counts(self) -> dict[str, int]:
        """Return the number of prompts per label in the published set."""
        total: dict[str, int] = {}
        for part in self.parts.values():
            for label, count in part.rows.items():
                total[label] = total.get(label, 0) + count
        return total


def known_datasets() -> list[str]:
    """Return the names of the sets in configs/datasets."""
    return sorted(path.stem for path in KNOWN.glob("*.yaml"))


def describe(name: str) -> Description:
    """Read the description of a set, from its name or the path of its YAML file.

    Raises:
        UserError: there is no such set, or a key is unknown; names the key and the nearest known one.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else KNOWN / f"{name}.yaml"
    if not path.is_file():
        near = get_close_matches(name.lower(), known_datasets(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(
            f"no data set {name!r}; {hint}choose from {', '.join(known_datasets())}, "
            "or give the path of a YAML file that describes it"
        )
    raw = read_yaml(path, "description")
    try:
        return Description.model_validate({"name": path.stem} | raw)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, Description)}") from None
