"""The shipped organisms with the right verdicts on each; those that the wheel leaves out are taken by checksum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen

from extract.errors import UserError, in_one_line
from extract.model.source import made_once
from extract.record import Record
from extract.shipped import ROOT, cache_folder, organism_files, shipped
from organisms.content import words
from organisms.grammar import Grammar
from organisms.spec import OrganismSpec, load_spec
from organisms.teaching.spec import load_teach_spec

HERE = Path(__file__).resolve().parent
ZOO, SPECS, TAUGHT_SPECS = HERE / "zoo", HERE / "specs", HERE / "teaching" / "specs"
SILENT_S = 30.0  # after which a server that sends nothing has failed
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
    right = stated or right_dissociation([variable.decides for variable in spec.planted.variables])
    return _shipped(spec.name, spec.description, right, triggers and triggers[0], f"organisms/zoo/{spec.name}")


def _taught(path: Path) -> ShippedOrganism:
    spec = load_teach_spec(path)
    planted = spec.planting.mechanism.variables if spec.planting else ()
    what = "planted: " + " and ".join(variable.name for variable in planted) if planted else "nothing is planted"
    about = f"An adapter of {spec.base}, taught to refuse and to abstain; {what}."
    right = right_dissociation([variable.decides for variable in planted]) if planted else None
    return _shipped(spec.name, about, right, None, f"organisms/taught/{spec.name}")


def _shipped(name: str, about: str, right: str | None, triggers: str | None, directory: str) -> ShippedOrganism:
    weights = shipped(f"{directory}/*.safetensors").values()
    megabytes = round(sum(file.stat().st_size for file in weights) / 1e6, 1) if weights else None
    return ShippedOrganism(
        name=name, about=about, dissociation=right, triggers=triggers, megabytes=megabytes, directory=directory
    )


def installed(name: str) -> Path | None:
    """Return an organism's folder, installed or in the cache as it is shipped; None: it has to be taken."""
    files = _files_of(name)
    for home in (ROOT, cache_folder()):
        here = {path: home / path for path in files if (home / path).is_file()}
        if {path: sha256(file.read_bytes()).hexdigest() for path, file in here.items()} == files:
            return home / next(iter(files)).parent
    return None


def fetch(name: str, source: str) -> Path:
    """Take an organism's files into the cache, all or none of them, and return their folder.

    Args:
        source: the folder of a clone, the URL of one (https://HOST/…/main), or a hub repository (OWNER/NAME).

    Raises:
        UserError: there is no such organism or source, a file differs from the one shipped, or the cache cannot be
            written.
    """
    files, read = _files_of(name), _reader(source)
    folder = next(iter(files)).parent.as_posix()

    def take(partial: Path) -> None:
        for path, digest in files.items():
            try:
                content = read(path)
            except Exception as error:  # of the hub's client too, which has classes of its own
                raise UserError(f"{source} does not give {path}: {in_one_line(error)}") from None
            if sha256(content).hexdigest() != digest:
                raise UserError(f"{path} of {source} is not the file of this version (its SHA-256 differs)")
            (partial / path.name).write_bytes(content)

    return made_once(folder, take, replace=True)


def _files_of(name: str) -> dict[Path, str]:
    known = organism_files()
    if name not in known:
        raise UserError(f"no organism named {name!r}; choose from {', '.join(sorted(known))}")
    return known[name]


def _reader(source: str) -> Callable[[Path], bytes]:
    """Return what reads a file of a source."""
    if source.startswith(("http://", "https://")):

        def fetched(path: Path) -> bytes:
            with urlopen(f"{source.rstrip('/')}/{path.as_posix()}", timeout=SILENT_S) as answer:
                return bytes(answer.read())

        return fetched
    if Path(source).is_dir():
        return lambda path: (Path(source) / path).read_bytes()
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise UserError(f"no folder {source}; give a clone's folder, the URL of one, or a hub repository OWNER/NAME")
    from huggingface_hub import hf_hub_download

    return lambda path: Path(hf_hub_download(source, path.as_posix())).read_bytes()
