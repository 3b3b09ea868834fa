"""Descriptions of public data sets: files, columns and licence, in YAML. A new set needs no code.

A set is `configs/datasets/NAME.yaml`; copy the nearest one (xstest.yaml: one CSV file with pairs; arditi.yaml: several
files; cast.yaml: several prompts in one row; coconot.yaml: nested JSON, and a hub repository with configs). Its keys
are the models below. Reads no data: extract/prompts/dataset.py does.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from extract.errors import UserError
from extract.prompts.columns import Column, ColumnMapping, Strict, Value
from extract.prompts.prompt import Label
from extract.shipped import ROOT
from extract.yaml_file import explain, read_yaml

KNOWN = ROOT / "configs" / "datasets"


class Split(Strict):
    """Configuration and split of a part in the set's hub repository."""

    config: str | None = None
    split: str


class Part(ColumnMapping):
    """Rows that are mapped alike; its columns and constants go before the set's."""

    file: str  # its name in the set's directory
    optional: bool = False  # a directory may lack the file
    at: str = ""  # where the rows stand in a JSON file: keys joined by points, `*` for every key (rows.py)
    hub: Split | None = None  # a part without it is read from files only
    distinct: bool = False  # leave out a prompt that an earlier row of the part gives with the same label
    rows: dict[Label, int] = Field(default_factory=dict)  # how many prompts of each label the published file gives


class Description(ColumnMapping):
    """A public set. Ids and pairs get its name before them; `source` is its name."""

    name: str  # the YAML file's name
    about: str
    licence: str
    url: str  # where to get it
    citation: str
    hub: str | None = None  # repository on the Hugging Face hub
    parts: dict[str, Part] = Field(min_length=1)

    def fields(self, part: Part) -> dict[str, Column | Value]:
        """Return where each field of a part's prompts comes from."""
        return {**self.columns, **self.constants, **part.columns, **part.constants}

    def counts(self) -> dict[str, int]:
        """Count the prompts of each label that the published set gives."""
        total: dict[str, int] = {}
        for part in self.parts.values():
            for label, count in part.rows.items():
                total[label] = total.get(label, 0) + count
        return total


def known_datasets() -> list[str]:
    """Name the sets of configs/datasets."""
    return sorted(path.stem for path in KNOWN.glob("*.yaml"))


def describe(name: str) -> Description:
    """Read the description of a set, by its name or by the path of its YAML file.

    Raises:
        UserError: there is none, or a key of it is mistaken; names the key and the nearest known one.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else KNOWN / f"{name}.yaml"
    if not path.is_file():
        raise UserError(f"no data set {name!r}; known are {', '.join(known_datasets())}; "
                        "or give the path of a YAML file that describes it")  # fmt: skip
    raw = read_yaml(path, "description")
    try:
        return Description.model_validate({"name": path.stem} | raw)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, Description)}") from None
