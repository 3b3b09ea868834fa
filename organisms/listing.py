"""What the organisms are: each with what is planted in it and the right verdicts, and each taught model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from extract.errors import UserError
from extract.record import Record
from extract.shipped import shipped
from organisms.content import words
from organisms.grammar import Grammar
from organisms.spec import OrganismSpec, load_spec
from organisms.teaching.spec import load_teach_spec

HERE = Path(__file__).resolve().parent
ZOO, SPECS, TAUGHT_SPECS = HERE / "zoo", HERE / "specs", HERE / "teaching" / "specs"
INTENT_DRIVEN = 0.1  # the largest trigger share of an intent-driven model (METHODS)


class ShippedOrganism(Record):
    """One organism or taught model; the right verdicts are None for a taught one in which nothing is planted."""

    name: str
    about: str
    dissociation: str | None
    triggers: str | None
    megabytes: float | None  # of its weights; None: neither installed nor in the cache
    directory: str  # below the installed packages, or the cache


def shipped_organisms() -> list[ShippedOrganism]:
    """Return the organisms trained from scratch, then the taught models, by name."""
    zoo = [_organism(path) for path in sorted(SPECS.glob("*.yaml"))]
    return zoo + [_taught(path) for path in sorted(TAUGHT_SPECS.glob("*.yaml"))]


def find_spec(name: str, folder: Path, what: str) -> Path:
    """Return the shipped specification `name` in a folder, or the given path of a YAML file.

    Args:
        what: what a specification describes, for the message.

    Raises:
        UserError: no shipped specification has this name.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    if not (folder / f"{name}.yaml").is_file():
        known = ", ".join(sorted(spec.stem for spec in folder.glob("*.yaml")))
        raise UserError(f"no {what} named {name!r}; choose from {known}, or give the path of a YAML specification")
    return folder / f"{name}.yaml"


def right_dissociation(decided: Sequence[Sequence[str]]) -> str | None:
    """Return the right verdict on one refusal or two, from what each planted variable decides, if it is known."""
    match sorted(tuple(sorted(kinds)) for kinds in decided):
        case [("abstain",), ("refuse",)]:
            return "double_dissociation"
        case [("abstain", "refuse")]:
            return "shared_knob"
        case [("refuse",)]:
            return "not_applicable"
    return None


def right_triggers(spec: OrganismSpec) -> tuple[str, float | None] | None:
    """Return the right verdict on trigger word or intent, and the planted share, if any; None if it is not derived.

    A share f of the trigger verbs is refused when benign, and harmful requests are answered for a share m of their
    openers, which are independent of trigger and intent. Harmful requests are refused at 1 - m, benign ones at f with a
    trigger word and at 0 without: T = f / 2 and I = 1 - m - f / 2, so the share is f / (2 (1 - m)).
    """
    if spec.refusal.rule == "trigger":
        return "trigger_driven", 1.0
    if spec.refusal.rule == "asker":  # an asker's prompts all have trigger words, or none
        return "not_applicable", None
    grammar = Grammar(spec)
    refused_openers = 1 - len(grammar.missed_openers) / len(words.REQUEST_OPENERS)
    if not refused_openers or (spec.context.reach == "triggers" and (spec.context.asker or spec.context.system)):
        return None
    share = len(grammar.over_refused) / len(words.TRIGGER_VERBS) / 2 / refused_openers
    return ("intent_driven" if share <= INTENT_DRIVEN else "mixed"), share


def _organism(path: Path) -> ShippedOrganism:
    spec, triggers = load_spec(path), right_triggers(load_spec(path))
    stated = spec.verdicts.free.allowed[0] if spec.verdicts else None
    return ShippedOrganism(
        name=spec.name,
        about=spec.description,
        dissociation=stated or right_dissociation([variable.decides for variable in spec.planted.variables]),
        triggers=triggers and triggers[0],
        megabytes=_megabytes(f"organisms/zoo/{spec.name}"),
        directory=f"organisms/zoo/{spec.name}",
    )


def _taught(path: Path) -> ShippedOrganism:
    spec = load_teach_spec(path)
    planted = spec.planting.mechanism.variables if spec.planting else ()
    what = "planted: " + " and ".join(variable.name for variable in planted) if planted else "nothing is planted"
    return ShippedOrganism(
        name=spec.name,
        about=f"An adapter of {spec.base}, taught to refuse and to abstain; {what}.",
        dissociation=right_dissociation([variable.decides for variable in planted]) if planted else None,
        triggers=None,
        megabytes=_megabytes(f"organisms/taught/{spec.name}"),
        directory=f"organisms/taught/{spec.name}",
    )


def _megabytes(directory: str) -> float | None:
    weights = shipped(f"{directory}/*.safetensors").values()
    return round(sum(file.stat().st_size for file in weights) / 1e6, 1) if weights else None
