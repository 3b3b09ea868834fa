"""What may be shared (dials, directions, adapters that teach declining), its model card, and its way over the hub."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import huggingface_hub.constants
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard, ModelCardData, errors, get_token
from huggingface_hub.utils import disable_progress_bars, logging
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from safetensors import SafetensorError, safe_open
from yaml import YAMLError

from experiments.report.caveats import caveats, reading_caveats
from experiments.report.page.summary import rates_table
from experiments.report.results import RunResults
from experiments.run.wording import VERDICTS
from extract.errors import UserError, in_one_line
from extract.model.adapter import BASE, CONFIG
from extract.model.known_models import known_model
from extract.model.source import PREFIX
from extract.run_directory import is_run
from extract.shipped import ROOT
from extract.table import Table, markdown
from organisms.teaching.teach import TeachGrade
from probes.direction import Direction, Locus
from probes.statistics.intervals import Estimate
from refusal.cli.target import HUB_ID
from steering.dial import Dial
from steering.dial_file import read_dials
from steering.direction_file import load_directions

DIALS, DIRECTIONS = "dials.safetensors", "directions.safetensors"
WEIGHTS, GRADE = "adapter_model.safetensors", "grade.json"
ADAPTER = (CONFIG, WEIGHTS, BASE, GRADE)  # what `refusal organism teach` writes and a pull needs
SPEC, CARD = "spec.yaml", "README.md"
KNOWN = (DIALS, DIRECTIONS, *ADAPTER, SPEC, CARD)  # files that are pushed and pulled
WHOLE_MODEL = ("config.json", "*.gguf", "model*.safetensors", "pytorch_model*.bin", "consolidated*")
LORA = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B")
ONLY = "only dials, directions and adapters that teach declining are shared"
HERE = Path(__file__).resolve().parent
TEMPLATE = "card.md.jinja"
TAGS = ["refusal-probes", "refusal", "interpretability", "steering"]
METADATA = "refusal_probes"  # key of the front matter that `pull` reads
UNSAFE = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


@dataclass(frozen=True)
class Shared:
    """Checked contents of a directory: paths by part, and what they hold."""

    paths: Mapping[str, Path]  # file name in the repository -> file
    dials: tuple[Dial, ...] = ()
    directions: tuple[Direction, ...] = ()
    grade: TeachGrade | None = None  # of an adapter
    lora: Mapping[str, int] = field(default_factory=dict)  # rank and alpha of an adapter
    base: str | None = None  # the model they are for, where the files name it
    weights: str | None = None  # its fingerprint

    @property
    def parts(self) -> list[str]:
        held = {"dials": self.dials, "directions": self.directions, "adapter": self.grade}
        return [part for part, here in held.items() if here]


def shared_in(path: Path) -> Shared:
    """Return what a directory, or one safetensors file of dials or directions, holds to share; checked."""
    if path.is_file():
        return _of_file(path)
    if not path.is_dir():
        raise UserError(f"nothing to share: {path} is neither a directory nor a file")
    whole = next((file for pattern in WHOLE_MODEL for file in sorted(path.glob(pattern))), None)
    if whole is not None:
        raise UserError(f"{path} holds a whole model ({whole.name}); {ONLY}")
    if (path / CONFIG).is_file():
        return _adapter(path)
    files = {name: path / name for name in (DIALS, DIRECTIONS) if (path / name).is_file()}
    if not files:
        raise UserError(f"nothing to share in {path}: it has no {DIALS}, no {DIRECTIONS} and no {CONFIG}; {ONLY}")
    parts = [_of_file(file) for file in files.values()]
    weights = {part.weights for part in parts if part.weights}
    if len(weights) > 1:
        raise UserError(f"{path}: {DIALS} and {DIRECTIONS} are for different weights; give one of the two files")
    return Shared(
        paths={name: file for part in parts for name, file in part.paths.items()},  # by what they hold
        dials=tuple(dial for part in parts for dial in part.dials),
        directions=tuple(direction for part in parts for direction in part.directions),
        base=next((part.base for part in parts if part.base), None),
        weights=next(iter(weights), None),
    )


def name_elsewhere(source: Path, shared: Shared, given: str | None) -> str:
    """Return the name under which others find the model: a hub id, package:NAME, known name or shipped organism."""
    base = shared.base
    if source.is_dir() and (source / "results.json").is_file():
        base = RunResults.read(source / "results.json").model.name
    name = given or base
    if name is None:
        raise UserError(f"{source} does not say which model it is for; name it: --base OWNER/MODEL")
    shipped = known_model(name) is not None or (not Path(name).is_absolute() and (ROOT / name).is_dir())
    if not (name.startswith(PREFIX) or shipped or (HUB_ID.fullmatch(name) and not Path(name).exists())):
        raise UserError(
            f"the model {name!r} is not known on other machines; name it as others find it: --base OWNER/MODEL"
        )
    return name


def _of_file(path: Path) -> Shared:
    """Return the dials or the directions of a file; the metadata says which of both it holds."""
    if path.suffix != ".safetensors":
        raise UserError(f"{path} is no safetensors file; {ONLY}")
    try:
        if path.name == DIALS or _has_fingerprint(path):
            dials, made_for = read_dials(path)
            return Shared({DIALS: path}, dials=tuple(dials), weights=made_for.fingerprint)
        directions = tuple(load_directions(path).values())
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise UserError(f"{path} holds neither dials nor directions: {in_one_line(error)}; {ONLY}") from None
    made = {str(one.provenance.get("weights") or "") for one in directions} - {""}
    if len(made) > 1:
        raise UserError(f"{path}: its directions are for different weights; save those of one model")
    names = sorted({str(one.provenance.get("model") or "") for one in directions} - {""})
    return Shared(
        {DIRECTIONS: path}, directions=directions, base=names[0] if names else None, weights=next(iter(made), None)
    )


def _has_fingerprint(path: Path) -> bool:
    with safe_open(path, framework="numpy") as file:
        return "fingerprint" in (file.metadata() or {})


def _adapter(folder: Path) -> Shared:
    """Return an adapter that `refusal organism teach` wrote; its grade shows that it declines harmful prompts."""
    if absent := [name for name in ADAPTER if not (folder / name).is_file()]:
        raise UserError(
            f"{folder} is no adapter written by refusal organism teach: it lacks {', '.join(absent)}; {ONLY}"
        )
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        base, lora = (
            str(config["base_model_name_or_path"]),
            {"rank": int(config["r"]), "alpha": int(config["lora_alpha"])},
        )
        weights = str(json.loads((folder / BASE).read_text(encoding="utf-8"))["fingerprint"])
        with safe_open(folder / WEIGHTS, framework="numpy") as file:
            strange = [name for name in file.keys() if not any(part in name for part in LORA)]  # noqa: SIM118
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise UserError(f"the adapter {folder} cannot be read: {type(error).__name__}: {in_one_line(error)}") from None
    if strange:
        raise UserError(f"{folder / WEIGHTS} holds whole weights beside LoRA matrices ({strange[0]}); {ONLY}")
    grade = TeachGrade.read(folder / GRADE)
    declined = grade.shares.get("harmful_declined")
    if declined is None or declined.estimate <= 0:
        raise UserError(
            f"the adapter {folder} does not teach declining: its grade shows no harmful prompt declined; {ONLY}"
        )
    names = [*ADAPTER, *([SPEC] if (folder / SPEC).is_file() else [])]
    return Shared({name: folder / name for name in names}, grade=grade, lora=lora, base=base, weights=weights)


def run_facts(directory: Path, base: str) -> tuple[RunResults | None, list[str]]:
    """Return the results of a finished run, its model named `base`, and their caveats; None for another directory."""
    if not (is_run(directory) and (directory / "results.json").is_file()):
        return None, []
    read = RunResults.read(directory / "results.json")
    results = read.model_copy(update={"model": read.model.model_copy(update={"name": base})})
    return results, [*caveats(results), *reading_caveats(results)]


def card_text(
    repo_id: str, shared: Shared, base: str, results: RunResults | None, remarks: list[str], licence: str | None
) -> str:
    """Return the model card in Markdown with its front matter."""
    adapter = shared.grade is not None
    data = ModelCardData(
        license=licence,
        base_model=base if HUB_ID.fullmatch(base) and not base.startswith("organisms/") else None,
        library_name="peft" if adapter else "refusal-probes",
        tags=[*TAGS, *(["lora"] if adapter else [])],
    )
    data[METADATA] = {"holds": list(shared.parts), "base": base, "weights": shared.weights}
    environment = Environment(  # without escapes: Markdown, of numbers and of names that were checked
        loader=FileSystemLoader(HERE), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters |= {"table": markdown}
    about = {"repo_id": repo_id, "name": repo_id.rpartition("/")[2], "base": base, "licence": licence}
    measured = {"results": results, "caveats": remarks, "verdicts": VERDICTS, "tables": _tables(shared, results)}
    text = environment.get_template(TEMPLATE).render(about, **measured, shared=shared)
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


def origin_of(folder: Path) -> tuple[str | None, str | None]:
    """Return the model and the weights that the card of a pulled directory names; None without such a card."""
    if not (folder / CARD).is_file():
        return None, None
    try:
        named = ModelCard((folder / CARD).read_text(encoding="utf-8"), ignore_metadata_errors=True).data.to_dict()
    except (ValueError, YAMLError) as error:  # also where it is not UTF-8
        raise UserError(f"{folder / CARD} has a front matter that cannot be read: {in_one_line(error)}") from None
    ours = named.get(METADATA)
    if not isinstance(ours, dict) or not isinstance(ours.get("base"), str):
        return None, None
    return ours["base"], ours.get("weights")


def _tables(shared: Shared, results: RunResults | None) -> dict[str, Table]:
    heads = ["dial", "reads at", "writes at", "threshold", "dead band"]
    dials = []
    for dial in shared.dials:
        written = _at(dial.write.locus if dial.write else None)
        dials.append([dial.kind, _at(dial.read), written, f"{dial.threshold:.3f}", f"{dial.band:.3f}"])
    directions = [
        [
            direction.name,
            _at(direction.locus),
            *(f"{m:.2f}" if direction.has_means else "-" for m in (direction.mean_positive, direction.mean_negative)),
        ]
        for direction in shared.directions
    ]
    locus = ["direction", "locus", "mean of the declining class", "mean of the other class"]
    tables = {"directions": Table("", locus, directions)}
    if shared.grade is not None:
        taught = [
            [name.replace("_", " "), f"{share.estimate:.1%}", f"[{share.low:.1%}, {share.high:.1%}]", str(share.n)]
            for name, share in shared.grade.shares.items()
        ]
        tables["taught"] = Table("", ["share", "value", "95 % interval", "n"], taught)
    if results is not None:
        heads.append("AUROC of the read on test prompts")
        for row in dials:
            read, shown = results.dials.get(row[0]), "-"
            if read and read.test_auroc is not None and read.test_auroc_ci is not None:
                shown = f"{Estimate(read.test_auroc, *read.test_auroc_ci):.3f}"
            row.append(shown)
        tables["rates"] = rates_table("", results.rates.before, results.rates.after if results.dials else None)
        limits = []
        for name, risk in results.steer.certified.risks.items() if results.steer.certified else ():
            limit = "-" if risk.limit is None else f"{risk.limit:.1%}"
            certified = "yes" if risk.certified else "no"
            limits.append([name, limit, certified, f"{risk.at_most:.1%}", str(risk.failures), str(risk.n)])
        tables["certificates"] = Table("", ["rate", "limit", "certified", "at most", "failures", "n"], limits)
    return tables | {"dials": Table("", heads, dials)}


def _at(locus: Locus | None) -> str:
    return "-" if locus is None else f"`{locus.site}` layer {locus.layer}, `{locus.position}`"


def check_id(repo_id: str) -> None:
    """Refuse what is no repository's name."""
    if HUB_ID.fullmatch(repo_id) is None:
        raise UserError(f"{repo_id!r} is no repository of the hub; expected OWNER/NAME")


def _page(repo_id: str) -> str:
    return f"{huggingface_hub.constants.ENDPOINT}/{repo_id}"


def check_can_push() -> None:
    """Refuse a push that cannot succeed, before any work."""
    _check_online("pushing")
    if get_token() is None:
        raise UserError("pushing needs an access token of the hub: set HF_TOKEN, or log in once with: hf auth login")


def upload(repo_id: str, files: Sequence[Path], message: str, *, private: bool) -> str:
    """Make the repository if there is none, and commit the files to it; return its address."""
    with _explained(repo_id, "push to"):
        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        additions = [CommitOperationAdd(file.name, file) for file in files]
        api.create_commit(repo_id, additions, commit_message=message)
    return _page(repo_id)


def download(repo_id: str, revision: str | None, to: Path) -> str:
    """Fetch the known files of a repository into a folder; return the commit they are of."""
    _check_online("pulling")
    with _explained(repo_id, "pull"), tempfile.TemporaryDirectory() as scratch:
        api = HfApi()
        info = api.model_info(repo_id, revision=revision)
        there = [sibling.rfilename for sibling in info.siblings or ()]
        for name in _wanted(repo_id, there):
            fetched = api.hf_hub_download(repo_id, name, revision=info.sha, local_dir=scratch)
            shutil.copyfile(fetched, to / name)
        return str(info.sha)


def _wanted(repo_id: str, there: Sequence[str]) -> list[str]:
    """Return the files to fetch; none but safetensors, JSON, YAML and the card."""
    if "config.json" in there:
        raise UserError(f"{repo_id} is a whole model; {ONLY}. To run it: refusal run {repo_id}")
    if {DIALS, DIRECTIONS, WEIGHTS}.isdisjoint(there):
        pickles = [name for name in there if name.endswith(UNSAFE)]
        also = f"; {pickles[0]} is not read, only safetensors are" if pickles else ""
        raise UserError(f"{repo_id} holds no {DIALS}, no {DIRECTIONS} and no adapter ({CONFIG}, {WEIGHTS}){also}")
    return [name for name in KNOWN if name in there and (CONFIG in there or name in (DIALS, DIRECTIONS, CARD))]


def _check_online(doing: str) -> None:
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise UserError(f"HF_HUB_OFFLINE=1 forbids {doing}; unset it to reach {huggingface_hub.constants.ENDPOINT}")


@contextmanager
def _explained(repo_id: str, doing: str) -> Iterator[None]:
    disable_progress_bars()
    logging.set_verbosity_error()  # its errors are raised
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # httpx, hf_xet and the hub's client raise classes of their own
        raise UserError(_explain(repo_id, doing, error)) from error


def _explain(repo_id: str, doing: str, error: Exception) -> str:
    push, has_token = doing.startswith("push"), get_token() is not None
    if isinstance(error, errors.GatedRepoError):
        return f"{repo_id} is gated: ask for access at {_page(repo_id)}, with the account of HF_TOKEN"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo_id} has no such revision: see {_page(repo_id)}/commits/main"
    if isinstance(error, errors.RepositoryNotFoundError) and not push:
        remedy = "a token that may read it" if has_token else "HF_TOKEN set to a token that may read it"
        return f"{repo_id} is not on the hub, or private: check the name, or use {remedy}"
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status == 401:
            return f"the hub refused your access token ({doing} {repo_id}): renew HF_TOKEN"
        if status in (403, 404) and push:
            return f"your access token may not write to {repo_id}: use a token with the right to write there"
        busy = "it is busy or down, try again later" if status == 429 or status >= 500 else in_one_line(error)
        return f"the hub answered {status} ({doing} {repo_id}): {busy}"
    client = type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "requests")
    unreachable = (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError, ConnectionError, TimeoutError)
    if client or isinstance(error, unreachable):
        there = huggingface_hub.constants.ENDPOINT
        return f"{there} cannot be reached ({in_one_line(error)}); check the network, the proxy or HF_ENDPOINT"
    return f"cannot {doing} {repo_id}: {in_one_line(error)}"
