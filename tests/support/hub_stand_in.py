"""A stand-in for the hub's HTTP interface: repositories in memory, as the real `huggingface_hub` calls it.

It makes repositories, takes commits (files inline or by the LFS protocol), lists and serves files, and refuses tokens.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from huggingface_hub import constants

from tests.support.local_http import QuietHandler, serving

TOKEN, READ_TOKEN = "hf_made_up_for_a_test", "hf_made_up_that_may_only_read"
LFS_ENDINGS = (".safetensors",)
Reply = tuple[int, bytes, dict[str, str]]  # status, body, headers


@dataclass
class Repository:
    """One repository: files of its newest commit, and the messages of all."""

    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    @property
    def sha(self) -> str:
        listed = json.dumps([[name, hashlib.sha1(data).hexdigest()] for name, data in sorted(self.files.items())])
        return hashlib.sha1(listed.encode()).hexdigest()


@dataclass
class Hub:
    """State of the server; `status` other than 200 answers every request with it."""

    endpoint: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)  # by SHA-256, sent by the LFS protocol
    requests: list[str] = field(default_factory=list)
    status: int = 200


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve a hub on a free port in a thread."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    with serving(Handler) as hub.endpoint:
        yield hub


def client_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the client read from HF_ENDPOINT and HF_HUB_OFFLINE when it was imported."""
    for name, value in {
        "ENDPOINT": endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)


class _RefusedError(Exception):
    """Status, code and message of an answer that gives nothing."""


class _Handler(QuietHandler):
    state: Hub

    def _answer(self) -> None:
        self.state.requests.append(f"{self.command} {self.path}")
        body, path = self.body(), self.path.partition("?")[0]
        try:
            self._refuse_tokens(path)
            self.send(*(self._post if self.command == "POST" else self._get)(path, body))
        except _RefusedError as refused:
            status, code, message = refused.args
            self.send(status, headers={"X-Error-Code": code, "X-Error-Message": message})

    def do_PUT(self) -> None:  # noqa: N802
        self.state.requests.append(f"PUT {self.path}")
        self.state.blobs[self.path.rpartition("/")[2]] = self.body()
        self.send(*_json({}))

    do_GET = do_HEAD = do_POST = _answer  # noqa: N815

    def _refuse_tokens(self, path: str) -> None:
        if self.state.status != 200:
            raise _RefusedError(self.state.status, "", "")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in (TOKEN, READ_TOKEN):
            raise _RefusedError(401, "", "Invalid credentials in Authorization header")
        if self.command == "POST" and token == READ_TOKEN and path != "/api/validate-yaml":
            raise _RefusedError(403, "", "you have not enough rights")

    def _get(self, path: str, _: bytes) -> Reply:
        if path.startswith("/api/models/"):
            owner, name, *rest = path.removeprefix("/api/models/").split("/")
            found = self._readable(f"{owner}/{name}")
            if rest and rest[-1] not in ("main", found.sha):
                raise _RefusedError(404, "RevisionNotFound", "")
            siblings = [{"rfilename": file} for file in sorted(found.files)]
            return _json({"id": f"{owner}/{name}", "sha": found.sha, "private": found.private, "siblings": siblings})
        if path.count("/") >= 5:
            owner, name, _, _, file = path.lstrip("/").split("/", 4)
            found = self._readable(f"{owner}/{name}")
            if file in found.files:
                data = found.files[file]
                etag = f'"{hashlib.sha256(data).hexdigest()}"'
                return 200, data, {"X-Repo-Commit": found.sha, "ETag": etag}
        raise _RefusedError(404, "EntryNotFound", "")

    def _post(self, path: str, body: bytes) -> Reply:
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if "/commit/" in path:
            return self._commit(path, body)
        asked = json.loads(body)
        if path == "/api/repos/create":
            name = f"{asked['organization']}/{asked['name']}"
            there = name in self.state.repositories
            self.state.repositories.setdefault(name, Repository(private=asked.get("visibility") == "private"))
            return _json({"url": f"{self.state.endpoint}/{name}", "name": name}, 409 if there else 200)
        if path.endswith(".git/info/lfs/objects/batch"):
            return _json({"transfer": "basic", "objects": [
                one | {"actions": {"upload": {"href": f"{self.state.endpoint}/lfs/{one['oid']}"}}}
                for one in asked["objects"]
            ]})  # fmt: skip
        if "/preupload/" in path:
            self._readable(_repo_of(path))
            mode = {one["path"]: "lfs" if one["path"].endswith(LFS_ENDINGS) else "regular" for one in asked["files"]}
            return _json({"files": [{"path": n, "uploadMode": how, "shouldIgnore": False} for n, how in mode.items()]})
        raise _RefusedError(404, "EntryNotFound", "")

    def _commit(self, path: str, body: bytes) -> Reply:
        found = self._readable(_repo_of(path))
        for line in map(json.loads, body.decode().splitlines()):
            value = line["value"]
            if line["key"] == "header":
                found.messages.append(value["summary"])
            elif line["key"] == "file":
                found.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                found.files[value["path"]] = self.state.blobs[value["oid"]]
        return _json(
            {"commitUrl": f"{self.state.endpoint}/{_repo_of(path)}/commit/{found.sha}", "commitOid": found.sha}
        )

    def _readable(self, name: str) -> Repository:
        found, token = self.state.repositories.get(name), self.headers.get("Authorization")
        if found is None or (found.private and not token):
            raise _RefusedError(404 if token else 401, "RepoNotFound", "Repository not found")
        return found


def _json(value: dict, status: int = 200) -> Reply:
    return status, json.dumps(value).encode(), {"Content-Type": "application/json"}


def _repo_of(path: str) -> str:
    return "/".join(path.removeprefix("/api/models/").split("/")[:2])
