"""The model card: what the files are for, what was measured with them, and the commands that use them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import huggingface_hub.constants
from huggingface_hub import ModelCard, ModelCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from yaml import YAMLError

from experiments.dials.results import DialResult
from experiments.report.caveats import caveats, reading_caveats
from experiments.report.page.summary import rates_table
from experiments.report.results import RunResults
from experiments.run.config import load_config
from experiments.run.wording import VERDICTS
from extract.errors import UserError, in_one_line
from extract.run_directory import is_run
from extract.table import Table, markdown
from probes.direction import Locus
from probes.statistics.intervals import Estimate
from refusal.cli.hub.contents import CARD, Shared
from refusal.cli.target import HUB_ID

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
    environment.filters |= {"table": markdown}
    text = environment.get_template(TEMPLATE).render(
        repo_id=repo_id,
        name=repo_id.rpartition("/")[2],
        shared=shared,
        base=base,
        licence=licence,
        verdicts=VERDICTS,
        tables=_tables(shared, facts.results if facts else None),
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


def _tables(shared: Shared, results: RunResults | None) -> dict[str, Table]:
    """Return the tables of a card by name."""
    heads = ["dial", "reads at", "writes at", "threshold", "dead band", "AUROC of the read on test prompts"]
    dials = [
        [
            dial.kind,
            _at(dial.read),
            _at(dial.write.locus if dial.write else None),
            f"{dial.threshold:.3f}",
            f"{dial.band:.3f}",
            *([] if results is None else [_auroc(results.dials.get(dial.kind))]),
        ]
        for dial in shared.dials
    ]
    directions = [
        [direction.name, _at(direction.locus), f"{direction.mean_positive:.2f}", f"{direction.mean_negative:.2f}"]
        for direction in shared.directions
    ]
    locus = ["direction", "locus", "mean of the declining class", "mean of the other class"]
    tables = {
        "dials": Table("", heads[: len(heads) - (results is None)], dials),
        "directions": Table("", locus, directions),
    }
    if shared.grade is not None:
        taught = [
            [name.replace("_", " "), f"{share.value:.1%}", f"[{share.low:.1%}, {share.high:.1%}]", str(share.n)]
            for name, share in shared.grade.shares.items()
        ]
        tables["taught"] = Table("", ["share", "value", "95 % interval", "n"], taught)
    if results is not None:
        tables["rates"] = rates_table("", results.rates.before, results.rates.after)
        certified = results.steer.certified
        risks = {} if certified is None else certified.risks
        limits = [
            [
                name,
                "-" if risk.limit is None else f"{risk.limit:.1%}",
                "yes" if risk.certified else "no",
                f"{risk.at_most:.1%}",
                str(risk.failures),
                str(risk.n),
            ]
            for name, risk in risks.items()
        ]
        tables["certificates"] = Table("", ["rate", "limit", "certified", "at most", "failures", "n"], limits)
    return tables


def _at(locus: Locus | None) -> str:
    return "-" if locus is None else f"`{locus.site}` layer {locus.layer}, `{locus.position}`"


def _auroc(dial: DialResult | None) -> str:
    if dial is None or dial.test_auroc is None or dial.test_auroc_ci is None:
        return "-"
    return f"{Estimate(dial.test_auroc, *dial.test_auroc_ci):.3f}"
