"""Fuzzing the server by its OpenAPI description gives documented replies and never a 5xx."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from serving.limits import Limits
from steering.dial import Dial
from tests.support.running_server import running

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "negative_data_rejection", "unsupported_method", "ignored_auth")  # fmt: skip


def fuzzed(url: str, where: Path, n: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS),
               "--max-examples", str(n), "--seed", "1", "--no-color", *options]  # fmt: skip
    environment = os.environ | {"SCHEMATHESIS_HOOKS": ""}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_a_fuzzer_finds_no_server_error(model: ChatModel, dials: list[Dial], tmp_path: Path) -> None:
    with running(model, dials, Limits(max_tokens=24)) as served:
        done = fuzzed(served.url, tmp_path, 40)
        assert httpx.get(f"{served.url}/health").json()["decoding"] == 0
    assert done.returncode == 0, done.stdout[-4000:]
    assert "No issues found" in done.stdout, done.stdout[-2000:]


@pytest.mark.slow
def test_the_fuzzer_would_find_one(model: ChatModel, dials: list[Dial], tmp_path: Path) -> None:
    def breaks(stream: object, _pass: object) -> object:
        raise ValueError("broken on purpose")

    with model.editing([Edit("resid_pre", 0, breaks)]), running(model, dials) as served:
        done = fuzzed(served.url, tmp_path, 5, "--include-path", "/v1/chat/completions")
    assert done.returncode == 1
    assert "500" in done.stdout
