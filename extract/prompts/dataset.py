"""Reads public data sets as prompts, from local files or from the hub."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field

from extract.errors import UserError
from extract.keyed_file import file_hash
from extract.prompts.columns import ABSENT, Column, ColumnMapping, Counts, Strict, Value, as_text, field_value, value_at
from extract.prompts.prompt import Label, Prompt, make_prompt
from extract.prompts.rows import Row, place, read_rows
from extract.shipped import ROOT, named_yaml
from extract.yaml_file import as_model, read_yaml

Rows = list[tuple[str, Row]]  # the place of each row, for messages, and its fields


def load_dataset(name: str, path: Path | None = None) -> list[Prompt]:
    """Read a public set, by its name in configs/datasets or the path of a YAML file that describes one.

    `path` is a file of the set, or the directory of its files; None reads from the hub. Raises UserError.
    """
    dataset = describe(name)
    prompts: dict[str, Prompt] = {}
    for part_name, rows in _from_hub(dataset) if path is None else _from_files(dataset, path):
        for where, prompt in _prompts(dataset, part_name, rows):
            if prompt.id in prompts:
                raise UserError(
                    f"{where}: id {prompt.id!r} occurs twice in {dataset.name}; leave 'id' out of the "
                    "columns to number the rows"
                )
            prompts[prompt.id] = prompt
    if not prompts:
        files = ", ".join(sorted({part.file for part in dataset.parts.values()}))
        raise UserError(f"{path or dataset.hub} has no prompts of {dataset.name}; get {files} from {dataset.url}")
    return list(prompts.values())


def _from_files(dataset: Description, path: Path) -> Iterator[tuple[str, Rows]]:
    for name, file in _files(dataset, path).items():
        part = dataset.parts[name]
        if part.sha256 and part.sha256 != file_hash(file):
            warnings.warn(
                f"{file} is not the file that {dataset.name} was described from: its authors changed it, or "
                "someone here did; its prompts may be others",
                stacklevel=2,
            )
        yield name, [(place(file, number), row) for number, row in read_rows(file, dataset.name, part.at)]


def _files(dataset: Description, path: Path) -> dict[str, Path]:
    """Return the file of each part in a directory, or in one file, whose name is free if the set has only one."""
    names = sorted({part.file for part in dataset.parts.values()})
    if not path.exists():
        raise UserError(f"{dataset.name} not found: {path}; get {', '.join(names)} from {dataset.url}")
    if path.is_file() and len(names) > 1 and path.name not in names:
        raise UserError(
            f"{path} is not a file of {dataset.name}, which has {', '.join(names)}; rename it, or give the "
            "directory with these files"
        )
    if path.is_file():
        return {name: path for name, part in dataset.parts.items() if part.file == path.name or len(names) == 1}
    for part in dataset.parts.values():
        if not (part.optional or (path / part.file).is_file()):
            raise UserError(
                f"{path} has no {part.file} of {dataset.name}; get it from {dataset.url}, or give one file as the path"
            )
    return {name: path / part.file for name, part in dataset.parts.items() if (path / part.file).is_file()}


def _from_hub(dataset: Description) -> Iterator[tuple[str, Rows]]:
    if dataset.hub is None:
        raise UserError(
            f"{dataset.name} is not read from the hub: get its files from {dataset.url} and give their path"
        )
    import datasets  # imports pandas, so only when the hub is used

    for name, part in dataset.parts.items():
        if part.hub is None:
            continue
        try:
            table = datasets.load_dataset(dataset.hub, part.hub.config, split=part.hub.split)
        except Exception as error:  # its readers and transports raise their own errors
            reason = " ".join(str(error).split()).rstrip(".")
            raise UserError(
                f"cannot load {dataset.name} from the hub ({dataset.hub}): {reason}; get it from "
                f"{dataset.url} and give its path, or log in with: hf auth login"
            ) from None
        yield name, [(f"{dataset.hub}, {part.hub.split}, row {i}", dict(row)) for i, row in enumerate(table, start=1)]


def _prompts(dataset: Description, part_name: str, rows: Rows) -> Iterator[tuple[str, Prompt]]:
    part = dataset.parts[part_name]
    sources = dataset.fields(part)
    _refuse_unknown_columns(dataset, sources, part, rows)
    counts: Counts = Counter()
    seen: set[tuple[str, str]] = set()
    for number, (where, row) in enumerate(rows, start=1):
        if any(as_text(value_at(row, column)) not in values for column, values in part.only.items()):
            continue
        fields = {name: field_value(name, source, row, where, counts) for name, source in sources.items()}
        if not isinstance(sources.get("id"), Column):
            fields["id"] = f"{part_name}/{number}"
        for name in ("id", "pair"):  # two sets may use the same numbers
            fields[name] = None if fields.get(name) is None else f"{dataset.name}/{fields[name]}"
        prompt = make_prompt({"source": dataset.name} | fields, where)
        key = (str(prompt.messages), prompt.label)
        if not (part.distinct and key in seen):
            yield where, prompt
        seen.add(key)


def _refuse_unknown_columns(
    dataset: Description, sources: Mapping[str, Column | Value], part: Part, rows: Rows
) -> None:
    wanted = [(column, "only") for column in part.only]
    for field, source in sources.items():
        if isinstance(source, Column):
            wanted += [(column, field) for column in (source.column, *source.unless, source.context) if column]
    for column, field in wanted:
        if rows and all(value_at(row, column) is ABSENT for _, row in rows):
            known = {name for _, row in rows for name in row}
            raise UserError(
                f"{rows[0][0]}: no column {column!r}, which {dataset.name} reads as {field!r}; "
                f"the columns are {', '.join(sorted(known))}"
            )


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
        return dict(sum((Counter[str](part.rows) for part in self.parts.values()), Counter()))


def known_datasets() -> list[str]:
    """Return the names of the sets in configs/datasets."""
    return sorted(path.stem for path in KNOWN.glob("*.yaml"))


def describe(name: str) -> Description:
    """Read the description of a set, from its name or the path of its YAML file."""
    path = named_yaml(name, KNOWN, "data set")
    return as_model(Description, {"name": path.stem} | read_yaml(path, "description"), path)
