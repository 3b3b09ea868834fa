"""One-line error messages for a model that cannot be downloaded from the Hugging Face hub.

Libraries wrap the hub's error several times; the cause is found by the types in the chain of exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import huggingface_hub.constants
from huggingface_hub import get_token
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

E = TypeVar("E", bound=BaseException)


def explain_hub(name: str, revision: str | None, error: BaseException) -> str | None:
    """Return why a hub id could not be loaded and what to do; None if the hub is not the cause."""
    causes = list(_chain(error))
    absent = _first(causes, LocalEntryNotFoundError) or _first(causes, OfflineModeIsEnabled)
    if absent and huggingface_hub.constants.HF_HUB_OFFLINE:
        return _offline(name)
    if answer := _first(causes, HfHubHTTPError):
        return _answered(name, revision, answer)
    if absent:
        reason = " ".join(str(causes[-1]).split())
        return (
            f"{name} is not in the local cache and {huggingface_hub.constants.ENDPOINT} cannot be reached "
            f"({reason}); check the network, the proxy or HF_ENDPOINT"
        )
    return None


def _answered(name: str, revision: str | None, error: HfHubHTTPError) -> str:
    status, has_token = error.response.status_code, get_token() is not None
    page = f"{huggingface_hub.constants.ENDPOINT}/{name}"
    if isinstance(error, GatedRepoError) and not has_token:
        return f"{name} is gated: accept its licence at {page} and set HF_TOKEN to your access token"
    if isinstance(error, GatedRepoError) and status == 403:
        return f"{name} is gated and your token's account has no access to it: ask for it at {page}"
    if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
        return _not_found(name, has_token)
    if isinstance(error, RevisionNotFoundError):
        return f"{name} has no revision {revision or 'main'!r}: see {page} for what model.revision can be"
    if isinstance(error, DisabledRepoError):
        return f"{name} has been disabled on the hub: choose another model"
    if status in (401, 403):
        return f"the hub refused your access token for {name}: renew HF_TOKEN (or unset it, for open models)"
    advice = "it is busy or down, try again later" if status == 429 or status >= 500 else f"see {page}"
    return f"the hub answered {status} when asked for {name}: {advice}"


def _not_found(name: str, has_token: bool) -> str:
    if "/" not in name:
        return f"model not found: {name!r} is neither a directory here nor a model on the hub (most are owner/name)"
    remedy = "a token that may read it" if has_token else "HF_TOKEN set to a token that may read it"
    return f"model not found: {name!r} is no directory here, and not on the hub or private: check it, or use {remedy}"


def _offline(name: str) -> str:
    place = "not in the local cache" if "/" in name else "neither a directory here nor in the local cache"
    return f"{name} is {place} and HF_HUB_OFFLINE=1 forbids fetching it"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first(causes: list[BaseException], kind: type[E]) -> E | None:
    return next((cause for cause in causes if isinstance(cause, kind)), None)
