"""The hub itself: uploads of files in one commit, downloads of known files, and its errors in one line."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub.constants
from huggingface_hub import CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars, logging

from extract.errors import UserError, in_one_line
from refusal.cli.hub.contents import CARD, CONFIG, DIALS, DIRECTIONS, KNOWN, ONLY, WEIGHTS, page
from refusal.cli.target import HUB_ID

UNSAFE = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


def check_id(repo_id: str) -> None:
    """Refuse what is no repository's name."""
    if HUB_ID.fullmatch(repo_id) is None:
        raise UserError(f"{repo_id!r} is no repository of the hub; expected OWNER/NAME")


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
    return page(repo_id)


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
    if isinstance(error, GatedRepoError):
        return f"{repo_id} is gated: ask for access at {page(repo_id)}, with the account of HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return f"{repo_id} has no such revision: see {page(repo_id)}/commits/main"
    if isinstance(error, RepositoryNotFoundError) and not push:
        remedy = "a token that may read it" if has_token else "HF_TOKEN set to a token that may read it"
        return f"{repo_id} is not on the hub, or private: check the name, or use {remedy}"
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status == 401:
            return f"the hub refused your access token ({doing} {repo_id}): renew HF_TOKEN"
        if status in (403, 404) and push:
            return f"your access token may not write to {repo_id}: use a token with the right to write there"
        busy = "it is busy or down, try again later" if status == 429 or status >= 500 else in_one_line(error)
        return f"the hub answered {status} ({doing} {repo_id}): {busy}"
    client = type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "requests")
    if client or isinstance(error, OfflineModeIsEnabled | LocalEntryNotFoundError | ConnectionError | TimeoutError):
        return (
            f"{huggingface_hub.constants.ENDPOINT} cannot be reached ({in_one_line(error)}); check the network, "
            "the proxy or HF_ENDPOINT"
        )
    return f"cannot {doing} {repo_id}: {in_one_line(error)}"
