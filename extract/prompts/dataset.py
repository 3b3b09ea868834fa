"""Reads public data sets as prompts, from local files or from the hub."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from extract.errors import UserError
from extract.prompts.columns import ABSENT, Column, Counts, Value, as_text, field_value, value_at
from extract.prompts.dataset_description import Description, Part, describe
from extract.prompts.prompt import Prompt, make_prompt
from extract.prompts.rows import Row, place, read_rows

Rows = list[tuple[str, Row]]  # the place of each row, for messages, and its fields


def load_dataset(name: str, path: Path | None = None) -> list[Prompt]:
    """Read a public data set.

    Args:
        name: the name of a set in configs/datasets, or the path of a YAML file that describes one.
        path: a file of the set, or the directory that holds its files; None reads from the hub.

    Raises:
        UserError: the set or its files cannot be found, or a row does not match the description.
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
    for name, part, file in list(_files(dataset, path)):
        if part.sha256 is not None and part.sha256 != _digest(file):
            warnings.warn(
                f"{file} is not the file that {dataset.name} was described from: its authors changed it, or "
                "someone here did; its prompts may be others",
                stacklevel=2,
            )
        yield name, [(place(file, number), row) for number, row in read_rows(file, dataset.name, part.at)]


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _files(dataset: Description, path: Path) -> Iterator[tuple[str, Part, Path]]:
    """Yield the parts in a directory, or in one file; the file's name is free if the set has only one file."""
    names = sorted({part.file for part in dataset.parts.values()})
    if not path.exists():
        raise UserError(f"{dataset.name} not found: {path}; get {', '.join(names)} from {dataset.url}")
    if path.is_file() and len(names) > 1 and path.name not in names:
        raise UserError(
            f"{path} is not a file of {dataset.name}, which has {', '.join(names)}; rename it, or give the "
            "directory with these files"
        )
    for name, part in dataset.parts.items():
        if path.is_file():
            if part.file == path.name or len(names) == 1:
                yield name, part, path
        elif (path / part.file).is_file():
            yield name, part, path / part.file
        elif not part.optional:
            raise UserError(
                f"{path} has no {part.file} of {dataset.name}; get it from {dataset.url}, or give one file as the path"
            )


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
