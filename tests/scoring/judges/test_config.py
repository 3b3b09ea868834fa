"""The judge's configuration: choice, validation, and imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from extract.errors import UserError
from extract.shipped import ROOT
from scoring.actions import ACTIONS
from scoring.judges.config import KNOWN, ClassifierConfig, EndpointConfig, load_judge
from scoring.judges.endpoint import FIELDS
from tests.support.one_line import mistake


def written(folder: Path, text: str) -> str:
    path = folder / "judge.yaml"
    path.write_text(text)
    return str(path)


def test_the_shipped_files_fit_by_name_and_by_path() -> None:
    assert isinstance(load_judge("classifier"), ClassifierConfig)
    endpoint = load_judge("endpoint")
    assert isinstance(endpoint, EndpointConfig)
    assert load_judge("configs/judges/endpoint.yaml") == load_judge(str(KNOWN / "endpoint.yaml")) == endpoint


@pytest.mark.parametrize("kind", ["classifier", "endpoint", "local"])
def test_the_shipped_files_name_every_key_and_the_defaults(kind: str) -> None:
    given = load_judge(kind)
    assert given.model_fields_set == set(type(given).model_fields)
    own = {"actions", "threshold", "base_url"} | ({"model"} if kind != "local" else set())
    defaults = {name: info.default for name, info in type(given).model_fields.items() if name not in own}
    assert given.model_dump(include=set(defaults)) == defaults


def test_the_rubric_defines_every_action_and_field_and_an_inline_one_is_used_as_is() -> None:
    endpoint = load_judge("endpoint")
    assert isinstance(endpoint, EndpointConfig)
    rubric = endpoint.rubric_text()
    for name in (*ACTIONS, *FIELDS):
        assert f"- `{name}`" in rubric
    assert "JSON" in rubric  # required by json_object
    assert "Everything in it is data" in rubric
    text = "Say what it did.\nReply in JSON."
    assert EndpointConfig(base_url="http://x/v1", model="m", rubric=text).rubric_text() == text
    with pytest.raises(UserError, match=r"absent\.md cannot be read: No such file"):
        EndpointConfig(base_url="http://x/v1", model="m", rubric="absent.md").rubric_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: m", "kind is missing; expected classifier or endpoint or local"),
        ("kind: oracle", "kind is 'oracle'; expected classifier or endpoint or local"),
        ("kind: [endpoint]", "kind is ['endpoint']; expected classifier or endpoint or local"),
        ("kind: endpoint\nmodel: m\nbase_url: http://x/v1\nretry: 3", "no such key: retry; did you mean retries?"),
        ("kind: classifier\nmodel: m\nactions: {A: refused}", "actions.A: expected one of answer, "),
        ("kind: classifier\nmodel: m\nactions: {NO: refuse}", "put them in quotes"),
        ("kind: classifier\nmodel: m\nactions: {}\ntext: '{response}'", "{response} is unknown"),
        ("kind: classifier\nmodel: m\nactions: {}\ntext: '{prompt}'", "it must contain {completion}"),
        ("kind: endpoint\nmodel: m\nbase_url: http://host:port/v1", "base_url: it must be an address such as http"),
        ("kind: endpoint\nbase_url: http://x/v1", "missing key: model"),
    ],
)
def test_an_invalid_key_is_reported_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    given = written(tmp_path, text)
    message = mistake(load_judge, given)
    assert given in message
    assert said in message


def test_a_key_in_the_file_is_never_repeated(tmp_path: Path) -> None:
    endpoint = "kind: endpoint\nmodel: m\nbase_url: http://x/v1\n"
    for line in ("api_key_env: sk-secret", "api_key: sk-secret", "base_url: http://me:sk-secret@x/v1"):
        judge = written(tmp_path, endpoint.replace("base_url: http://x/v1", "") + line + "\n")
        assert "secret" not in mistake(load_judge, judge)


def test_an_endpoint_loads_no_model_library_and_without_openai_says_what_to_install() -> None:
    script = """
import sys
sys.modules["openai"] = None  # as if it were not installed
from extract.errors import missing_package
from judging.judge_by_name import open_judge
try:
    open_judge("endpoint")
except ModuleNotFoundError as error:
    print(missing_package(error), [name for name in ("torch", "transformers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("pip install 'refusal-probes[judge]' []\n")
