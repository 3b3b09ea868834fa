from pathlib import Path

import pytest

from experiments.dials.surface import RISKS
from experiments.run.config import RunConfig, load_config
from extract.errors import UserError
from extract.yaml_file import known_keys, nearest_key

HEAD = "name: one\nmodel: {name: m}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}prompts: {{path: p.jsonl}}\n")
    return path


def test_defaults_and_overrides(config: Path) -> None:
    loaded = load_config(config, ["model.name=owner/model", "dissociate.margin=0.2", "extract.layers=[1, 2]"])
    assert loaded.model.name == "owner/model"
    assert loaded.dissociate.margin == 0.2
    assert loaded.extract.layers == (1, 2)
    assert loaded.prompts.path == Path("p.jsonl")


def test_public_sets_are_added_to_a_file_or_replace_it(config: Path) -> None:
    both = load_config(config, ["prompts.datasets=[{name: xstest, path: x.csv, limit: 9}, {name: selfaware}]"]).prompts
    assert both.path == Path("p.jsonl")
    assert [(given.name, given.path, given.limit) for given in both.datasets] == [
        ("xstest", Path("x.csv"), 9), ("selfaware", None, None),
    ]  # fmt: skip
    assert both.described() == "p.jsonl + xstest + selfaware"
    assert load_config(config, ["prompts.path=null", "prompts.datasets=[{name: cast}]"]).prompts.described() == "cast"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steer.strength=0", "steer.strength: expected a number above 0, got 0"),
        ("steer.actuator=nudge", "steer.actuator: expected one of affine, addition, clamp, onset_bias, got 'nudge'"),
        ("steer.strength=.inf", "steer.strength: expected a finite number, got inf"),
        ("steer={layers: later, actuator: onset_bias}", "actuator 'onset_bias' writes at no layer"),
        ("steer={layers: later, actuator: addition}", "actuator 'addition' adds once, at the selected layer"),
        ("extract.site=resid_mdi", "got 'resid_mdi'; did you mean resid_mid?"),
        ("model.loading.tp_plan=yes", "model.loading.tp_plan: expected auto, got true"),
        ("model=zoo/a", r"model: expected a section .* model: \{name: ...\} \(--set model.name=...\), got 'zoo/a'"),
        ("prompts.datasets=[xstest]", r"datasets.0: expected a section .*, such as \{name: ...\}, got 'xstest'"),
        ("model.name=3", "model.name: expected text, got 3"),
        ("dissociate.variants=maybe", "dissociate.variants: expected true or false, got 'maybe'"),
        ("prompts.path=3", "prompts.path: expected the path of a file, got 3"),
        ("steer.band=0.7", "steer.band: expected a number below 0.5"),
        ("generate.max_new_tokens=many", "generate.max_new_tokens: expected a whole number, got 'many'"),
        ("uncertainty.meaning=''", "uncertainty.meaning: expected text that is not empty, got ''"),
        ("model.loading.max_memory=x", r"expected keys and values, such as \{key: value\}, got 'x'"),
        ("dissociate.positions=[]", r"dissociate.positions: expected at least 1 entry, got \[\]"),
        ("steer.at=thought", "steer.at is thought, and no thought is captured; set extract.thought_tokens"),
        ("dissociate.positions=[pst_last]", "expected inst_last, post_last, post_1, post_2 .*; got 'pst_last'"),
        ("name=a b", "name: expected letters, digits, points, hyphens and underscores, .*; got 'a b'"),
        ("zzz=1", "no such key: zzz; the keys are name, seed, model, prompts, extract, "),
        ("prompts.test=0.9", "parts sum to 1.55, and 1 is the whole .train 0.35, .*, test 0.9.; lower some"),
        ("dissociate.margn=0.2", "no such key: dissociate.margn; did you mean dissociate.margin?"),
        ("dissociate.rank=all", "dissociate.rank: expected auto, or a number of directions from 1 to 8; got 'all'"),
        ("dissociate.margin", "--set takes key=value"),
        ("name.x=1", "'name' is not a section"),
        ("extract.layers=[1, 2", r"--set extract.layers: '\[1, 2' is not readable YAML: while parsing a flow sequence"),
        ("name=2026-13-01", "--set name: '2026-13-01' is not readable YAML: month must be in 1..12"),
        ("uncertainty.samples=1", "is 1, and one sample cannot disagree with itself; give at least 2, better 10"),
        ("dissociate.n_null_onset=18", r"must be at least 19 for alpha 0.05: .* 1/\(n \+ 1\), here 0.0526"),
        ("dissociate={alpha: 0.03, n_null_onset: 32}", "n_null_onset must be at least 33 for alpha 0.03"),
        ("dissociate.positions=[response_1]", "dissociate.positions.0: expected inst_last, .*got 'response_1'"),
    ],
)
def test_a_mistaken_override_names_the_key(config: Path, override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(config, [override])


@pytest.mark.parametrize(("alpha", "n_null"), [(0.05, 19), (0.03, 33)])
def test_a_null_whose_smallest_p_is_alpha_is_large_enough(config: Path, alpha: float, n_null: int) -> None:
    given = load_config(config, [f"dissociate={{alpha: {alpha}, n_null_onset: {n_null}}}"])
    assert given.dissociate.n_null_onset == n_null


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "not readable YAML"),
        ("- a\n- b\n", "must hold keys and values, found list"),
        (HEAD, "missing key: prompts"),
        (f"{HEAD}prompts: {{train: 0.5}}\n", "prompts: no prompts; give prompts.path, .* or prompts.datas"),
        (f"{HEAD}prompts: {{datasets: [{{nam: xstest}}]}}\n", "no such key: .*0.nam; did you mean .*datasets.name?"),
        (f"{HEAD}prompts: {{datasets: [{{name: x, limit: 0}}]}}\n", "prompts.datasets.0.limit: "),
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


def test_every_risk_of_the_dials_has_a_limit_and_may_be_without(config: Path) -> None:
    assert set(load_config(config).steer.limits) == set(RISKS)
    for risk in RISKS:
        assert risk not in load_config(config, [f"steer.max_{risk}=null"]).steer.limits
        assert load_config(config, [f"steer.max_{risk}=0.3"]).steer.limits[risk] == 0.3


def test_write_positions_must_be_among_those_extracted(config: Path) -> None:
    extracted = "extract.positions=[inst_last, post_last]"
    assert load_config(config, [extracted, "dissociate.positions=[post_last]"]).dissociate.positions == ("post_last",)
    with pytest.raises(UserError, match=r"dissociate.positions names post_1, which extract.positions \(inst_last, "):
        load_config(config, [extracted, "dissociate.positions=[post_last, post_1]"])
