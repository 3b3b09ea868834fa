"""Which extra a missing package is named with."""

import importlib.metadata

import pytest

from extract.errors import missing_package


@pytest.mark.parametrize(
    ("module", "extra"),
    [("sklearn.base", "run"), ("vl_convert", "page"), ("uvicorn", "serve"), ("openai", "judge"), ("gguf", "run")],
)
def test_the_smallest_extra_for_users_is_named(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    line = missing_package(ModuleNotFoundError(name=module))
    assert line is not None
    assert line.endswith(f": pip install 'refusal-probes[{extra}]'")


def test_other_faults_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_package(ModuleNotFoundError(name="numpy.no_such_part")) is None  # numpy is here, of another version
    assert missing_package(ModuleNotFoundError(name="no_such_package")) is None
    assert missing_package(ModuleNotFoundError()) is None

    def absent(_: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("importlib.metadata.requires", absent)
    assert missing_package(ModuleNotFoundError(name="torch")) is None  # a checkout that is not installed
