"""What ships, with the right verdicts, as docs/organisms.md and the command list it."""

import json
import re

from extract.shipped import ROOT
from organisms.listing import shipped_organisms


def test_the_verdicts_are_those_of_the_documentation() -> None:
    page = (ROOT / "docs/organisms.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|[^|]*\| ([^|]*) \| ([^|]*) \|$", page, re.M)
    documented = {name: (two, word) for name, two, word in rows}
    listed = {one.name: one for one in shipped_organisms() if one.dissociation}
    assert set(listed) == set(documented)
    for name, (two, word) in documented.items():
        assert two.startswith(str(listed[name].dissociation).replace("_", " "))
        assert word.replace("-", "_").replace(" ", "_").startswith(str(listed[name].triggers))


def test_the_command_lists_them(cli) -> None:
    code, out, _ = cli("organism", "list")
    assert code == 0
    says = "Two orthogonal planted decisions; half the trigger verbs are refused even when benign."
    assert f"two-knobs\n  {says}\n" in out
    assert "  right verdicts: double dissociation, mixed\n  3.7 MB in organisms/zoo/two-knobs\n" in out
    listed = json.loads(cli("organism", "list", "--json")[1])
    assert {one["name"]: one["dissociation"] for one in listed if "taught" in one["directory"]} == {
        "smollm2-natural": None, "smollm2-shared-knob": "shared_knob", "smollm2-two-knobs": "double_dissociation",
    }  # fmt: skip
    assert all((ROOT / one["directory"]).is_dir() and one["megabytes"] > 1 for one in listed)
