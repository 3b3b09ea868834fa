from pathlib import Path

import pytest

from experiments.config import RunConfig, load_config
from extract.errors import UserError
from extract.keys import known_keys, nearest_key

GOOD = "name: one\nmodel: {name: m}\nprompts: {path: p.jsonl}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(GOOD)
    return path


def test_defaults_and_overrides(config: Path) -> None:
    loaded = load_config(config, ["model.name=owner/model", "dissociate.margin=0.2", "extract.layers=[1, 2]"])
    assert loaded.model.name == "owner/model"
    assert loaded.dissociate.margin == 0.2
    assert loaded.extract.layers == (1, 2)
    assert loaded.prompts.path == Path("p.jsonl")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dissociate.margn=0.2", "no such key: dissociate.margn; did you mean dissociate.margin?"),
        ("modle.name=x", "no such key: modle; did you mean model?"),
        ("dissociate.margin=lots", "dissociate.margin: .*got 'lots'"),
        ("dissociate.margin", "--set takes key=value"),
        ("name.x=1", "'name' is not a section"),
        ("steer.band=0.7", "steer.band: .*less than 0.5"),
        ("extract.site=resid_middle", "extract.site"),
        ("dissociate.n_null_onset=40", "n_null_onset must be at least 80"),
    ],
)
def test_a_mistaken_override_names_the_key(config: Path, override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(config, [override])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "not readable YAML"),
        ("- a\n- b\n", "must hold keys and values, found list"),
        ("name: x\nmodel: {name: m}\n", "missing key: prompts"),
        ("name: ../up\nmodel: {name: m}\nprompts: {path: p}\n", "name: "),
    ],
)
def test_a_malformed_file_is_explained(config: Path, text: str, message: str) -> None:
    config.write_text(text)
    with pytest.raises(UserError, match=message):
        load_config(config)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"configuration not found: .*nowhere\.yaml"):
        load_config(tmp_path / "nowhere.yaml")


def test_every_key_is_its_own_nearest() -> None:
    assert all(nearest_key(key, RunConfig) == key for key in known_keys(RunConfig))
    assert nearest_key("zzzzqqqq", RunConfig) is None


def test_the_shipped_configuration_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("configs/quickstart.yaml")).name == "quickstart"
