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

from tests.support.local_http import QuietHandler, serving

TOKEN, READ_TOKEN = "hf_made_up_for_a_test", "hf_made_up_that_may_only_read"
LFS_ENDINGS = (".safetensors",)


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


class _Handler(QuietHandler):
    state: Hub

    def do_POST(self) -> None:  # noqa: N802
        body, path = self.body(), self._begin()
        if path is None:
            return
        if path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._lfs(json.loads(body))
        elif "/preupload/" in path:
            self._preupload(path, json.loads(body))
        elif "/commit/" in path:
            self._commit(path, body)
        else:
            self._problem(404, "EntryNotFound")

    def do_PUT(self) -> None:  # noqa: N802
        body = self.body()
        self.state.requests.append(f"PUT {self.path}")
        self.state.blobs[self.path.rpartition("/")[2]] = body
        self._json({})

    def do_GET(self) -> None:  # noqa: N802
        if (path := self._begin()) is None:
            return
        if path.startswith("/api/models/"):
            owner, name, *rest = path.removeprefix("/api/models/").split("/")
            if (found := self._readable(f"{owner}/{name}")) is None:
                return
            if rest and rest[-1] not in ("main", found.sha):
                self._problem(404, "RevisionNotFound")
                return
            siblings = [{"rfilename": file} for file in sorted(found.files)]
            self._json({"id": f"{owner}/{name}", "sha": found.sha, "private": found.private, "siblings": siblings})
            return
        if path.count("/") < 5:
            self._problem(404, "EntryNotFound")
            return
        owner, name, _, _, file = path.lstrip("/").split("/", 4)
        if (found := self._readable(f"{owner}/{name}")) is None:
            return
        if file not in found.files:
            self._problem(404, "EntryNotFound")
            return
        data = found.files[file]
        self.send(200, data, {"X-Repo-Commit": found.sha, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'})

    do_HEAD = do_GET  # noqa: N815

    def _begin(self) -> str | None:
        """Note the request; return its path, or None after an answer that ends it."""
        self.state.requests.append(f"{self.command} {self.path}")
        if self.state.status != 200:
            self._problem(self.state.status)
            return None
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in (TOKEN, READ_TOKEN):
            self._problem(401, message="Invalid credentials in Authorization header")
            return None
        if self.command == "POST" and token == READ_TOKEN and self.path != "/api/validate-yaml":
            self._problem(403, message="you have not enough rights")
            return None
        return self.path.partition("?")[0]

    def _create(self, asked: dict) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        there = name in self.state.repositories
        if not there:
            self.state.repositories[name] = Repository(private=asked.get("visibility") == "private")
        self._json({"url": f"{self.state.endpoint}/{name}", "name": name}, 409 if there else 200)

    def _preupload(self, path: str, asked: dict) -> None:
        if self._readable(_repo_of(path)) is None:
            return
        mode = {one["path"]: "lfs" if one["path"].endswith(LFS_ENDINGS) else "regular" for one in asked["files"]}
        self._json({"files": [{"path": name, "uploadMode": how, "shouldIgnore": False} for name, how in mode.items()]})

    def _lfs(self, asked: dict) -> None:
        self._json({"transfer": "basic", "objects": [
            one | {"actions": {"upload": {"href": f"{self.state.endpoint}/lfs/{one['oid']}"}}}
            for one in asked["objects"]
        ]})  # fmt: skip

    def _commit(self, path: str, body: bytes) -> None:
        if (found := self._readable(_repo_of(path))) is None:
            return
        for line in map(json.loads, body.decode().splitlines()):
            value = line["value"]
            if line["key"] == "header":
                found.messages.append(value["summary"])
            elif line["key"] == "file":
                found.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                found.files[value["path"]] = self.state.blobs[value["oid"]]
        self._json({"commitUrl": f"{self.state.endpoint}/{_repo_of(path)}/commit/{found.sha}", "commitOid": found.sha})

    def _readable(self, name: str) -> Repository | None:
        """Return a repository; None after the hub's answer for one that is absent or private."""
        found = self.state.repositories.get(name)
        if found is None or (found.private and not self.headers.get("Authorization")):
            self._problem(404 if self.headers.get("Authorization") else 401, "RepoNotFound", "Repository not found")
            return None
        return found

    def _json(self, value: dict, status: int = 200) -> None:
        self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _problem(self, status: int, code: str = "", message: str = "") -> None:
        self.send(status, b"", {"X-Error-Code": code, "X-Error-Message": message})


def _repo_of(path: str) -> str:
    return "/".join(path.removeprefix("/api/models/").split("/")[:2])
