"""The model card: what the files are for, what was measured with them, and the commands that use them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import huggingface_hub.constants
from huggingface_hub import ModelCard, ModelCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from yaml import YAMLError

from experiments.report.caveats import caveats, reading_caveats
from experiments.report.results import RunResults
from experiments.run.config import load_config
from experiments.run.wording import VERDICTS
from extract.errors import UserError, in_one_line
from extract.run_directory import is_run
from probes.direction import Locus
from refusal.cli.hub.contents import CARD, Shared
from refusal.cli.target import HUB_ID
from scoring.wording import RATE_MEANING

HERE = Path(__file__).resolve().parent
TEMPLATE = "card.md.jinja"
TAGS = ["refusal-probes", "refusal", "interpretability", "steering"]
METADATA = "refusal_probes"  # key of the front matter that `pull` reads


@dataclass(frozen=True)
class Origin:
    """The model that shared files are for, as the front matter of a card names it."""

    base: str
    weights: str | None


@dataclass(frozen=True)
class RunFacts:
    """What a card says of the run that made the files."""

    results: RunResults
    caveats: list[str]


def run_facts(directory: Path, base: str) -> RunFacts | None:
    """Return the results of a finished run and their caveats; None where the directory is no finished run.

    Args:
        base: the name of the model, in place of a path of this machine.
    """
    if not (is_run(directory) and (directory / "results.json").is_file()):
        return None
    read = RunResults.read(directory / "results.json")
    results = read.model_copy(update={"model": read.model.model_copy(update={"name": base})})
    judge = load_config(directory / "config.yaml").judge
    judge = judge if judge == "rules" else Path(judge).name
    return RunFacts(results, [*caveats(results), *reading_caveats(results, judge)])


def card_text(repo_id: str, shared: Shared, base: str, facts: RunFacts | None, licence: str | None) -> str:
    """Return the model card in Markdown with its front matter."""
    adapter = shared.grade is not None
    data = ModelCardData(
        license=licence,
        base_model=base if HUB_ID.fullmatch(base) and not base.startswith("organisms/") else None,
        library_name="peft" if adapter else "refusal-probes",
        tags=[*TAGS, *(["lora"] if adapter else [])],
    )
    data[METADATA] = {"holds": list(shared.parts), "base": base, "weights": shared.weights}
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown, of numbers and of names that were checked
    )
    environment.filters |= {"at": _at, "cell": _cell, "share": lambda value: f"{value:.1%}"}
    text = environment.get_template(TEMPLATE).render(
        repo_id=repo_id,
        name=repo_id.rpartition("/")[2],
        shared=shared,
        base=base,
        licence=licence,
        verdicts=VERDICTS,
        rates=RATE_MEANING,
        results=facts and facts.results,
        caveats=facts.caveats if facts else [],
    )
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


def origin_of(folder: Path) -> Origin | None:
    """Return the model that the card of a pulled directory names; None without such a card."""
    if not (folder / CARD).is_file():
        return None
    try:
        named = ModelCard((folder / CARD).read_text(encoding="utf-8"), ignore_metadata_errors=True).data.to_dict()
    except (ValueError, YAMLError) as error:  # also where it is not UTF-8
        raise UserError(f"{folder / CARD} has a front matter that cannot be read: {in_one_line(error)}") from None
    ours = named.get(METADATA)
    if not isinstance(ours, dict) or not isinstance(ours.get("base"), str):
        return None
    return Origin(ours["base"], ours.get("weights"))


def page(repo_id: str) -> str:
    """Return the address of a repository."""
    return f"{huggingface_hub.constants.ENDPOINT}/{repo_id}"


def _at(locus: Locus | None) -> str:
    return "-" if locus is None else f"`{locus.site}` layer {locus.layer}, `{locus.position}`"


def _cell(text: object) -> str:
    """Return a text that stays in its cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")
