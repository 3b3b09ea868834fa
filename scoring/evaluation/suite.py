"""Suites of `refusal eval`: named lists of public sets and prompt files, and how many prompts of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from pydantic import Field

from extract.errors import UserError
from extract.prompts.dataset import describe, load_dataset
from extract.prompts.prompt import Prompt, load_prompts
from extract.prompts.sources import DatasetConfig
from extract.shipped import ROOT, named_yaml, resolve_shipped
from extract.yaml_file import Strict, as_model, read_yaml
from probes.statistics.seeds import named_rng
from scoring.accommodation import direct_of, variants

KNOWN = ROOT / "configs" / "suites"


class Suite(Strict):
    """What is asked: a prompt file, public sets, or both."""

    about: str = ""
    seed: int = 0  # for drawing prompts where there is a limit
    path: Path | None = None  # a prompt file
    limit: int | None = Field(None, ge=1)  # most prompts of each label, of each source without a limit of its own
    datasets: tuple[DatasetConfig, ...] = ()
    variants: bool = False  # of pairs of a direct and a loaded question: also as asked by personas and in later turns


def load_suite(given: str) -> Suite:
    """Read a suite: the name of a shipped one, or a YAML file."""
    path = named_yaml(given, KNOWN, "suite")
    return as_model(Suite, read_yaml(path, "suite"), path)


def prompts_of(suite: Suite, folder: Path | None = None, limit: int | None = None) -> list[Prompt]:
    """Read the prompts of a suite; the same suite and files give the same prompts in the same order.

    Files of the sets lie in folder/NAME, or in the folder itself; other sets are read from the hub. Of each label of
    each source, `limit` prompts are read at most.
    """
    sets = [_in_folder(one, folder) for one in suite.datasets]
    if missing := [one for one in sets if one.path is None and describe(one.name).hub is None]:
        raise UserError(_missing([one.name for one in missing], folder))
    sources = [] if suite.path is None else [(load_prompts(resolve_shipped(suite.path)), suite.limit)]
    sources += [(load_dataset(one.name, one.path), one.limit or suite.limit) for one in sets]
    limits = [min((most for most in (own, limit) if most is not None), default=None) for _, own in sources]
    prompts = [p for (whole, _), most in zip(sources, limits, strict=True) for p in _drawn(whole, most, suite.seed)]
    if suite.variants:
        if not (made := variants(prompts)):
            pairs = "pairs of a question with right_action correct_premise and one with answer no"
            raise UserError(
                f"the suite asks for variants of {pairs}, has none; leave variants out, or see docs/accommodation.md"
            )
        prompts += made
    if not prompts:
        remedy = "give it a path, a prompt file, or datasets, a list of public sets such as {name: xstest, limit: 100}"
        raise UserError(f"the suite names no prompts; {remedy}")
    twice = [one for one, n in Counter(prompt.id for prompt in prompts).items() if n > 1]
    if twice:
        raise UserError(f"the suite has the prompt {twice[0]!r} twice; name each source once")
    return prompts


def _drawn(prompts: list[Prompt], limit: int | None, seed: int) -> list[Prompt]:
    """Draw at most `limit` prompts of each label, evenly over the categories; the order is kept.

    Unlike the prompts of a run, pairs need not be whole: nothing is fitted, and intervals count whole groups. But
    the direct questions of a pair are drawn with its loaded one, and not by themselves.
    """
    if limit is None:
        return prompts
    direct = direct_of(prompts)
    kinds: dict[str, dict[str | None, list[int]]] = {}
    for row, prompt in enumerate(prompts):
        if row in direct:
            continue
        kinds.setdefault(prompt.label, {}).setdefault(prompt.category, []).append(row)
    taken: list[int] = []
    for label, categories in kinds.items():
        rng = named_rng(seed, "suite", prompts[0].source or "", label)
        shuffled = [rng.permutation(rows).tolist() for rows in categories.values()]
        shuffled = [shuffled[i] for i in rng.permutation(len(shuffled))]  # there may be more categories than prompts
        turns = [row for each in zip_longest(*shuffled) for row in each if row is not None]
        taken += turns[:limit]
    pairs = {prompts[row].pair for row in taken}
    taken += [row for row, pair in direct.items() if pair in pairs]
    return [prompts[row] for row in sorted(taken)]


def _in_folder(given: DatasetConfig, folder: Path | None) -> DatasetConfig:
    if given.path is not None or (held := folder_of_set(given.name, folder)) is None:
        return given
    return given.model_copy(update={"path": held})


def folder_of_set(name: str, folder: Path | None) -> Path | None:
    """Return where the files of a public set lie: folder/NAME, or the folder itself; None where neither has them.

    UserError: there is no such folder.
    """
    if folder is None:
        return None
    if not folder.is_dir():
        raise UserError(f"--sets {folder} is not a directory; give the one that holds the files of the sets")
    description = describe(name)
    own = folder / description.name
    needed = [part.file for part in description.parts.values() if not part.optional]
    files = needed or [part.file for part in description.parts.values()]
    there = all if needed else any
    return own if own.is_dir() else folder if there((folder / file).is_file() for file in files) else None


def _missing(names: Sequence[str], folder: Path | None) -> str:
    first = describe(names[0])
    files = " and ".join(sorted({part.file for part in first.parts.values() if not part.optional}))
    where = "give their folder with --sets DIR" if folder is None else f"put them into {folder}/NAME"
    source = f"{first.name}: {files} from {first.url}"
    return f"{', '.join(names)}: not read from the hub, and there are no files; {where} ({source})"
