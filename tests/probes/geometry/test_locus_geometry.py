"""The geometry of a locus: its parts, their order, and what JSON gives back."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from probes.contrast import Contrast
from probes.geometry.cosines import compare_directions
from probes.geometry.fitted_direction import fit_with_null
from probes.geometry.locus_geometry import LocusGeometry, geometry_at
from tests.support.planted_contrasts import Planted

X, A, B = Planted(n=200, d=12, cosine=0.6, split=True).draw(0)
NOISE = Planted(n=200, d=12, strength_a=0, strength_b=0, split=True).draw(1)[0]


LOCI = np.stack([[NOISE, NOISE], [NOISE, X]]).astype(np.float32)  # layers 0 and 1, inst_last and post_last


def _grid(contrasts: list[Contrast], n: int = 39) -> list[LocusGeometry]:
    loci = itertools.product(range(2), enumerate(("inst_last", "post_last")))
    return [geometry_at(LOCI[i, j], i, position, contrasts, n=n) for i, (j, position) in loci]


def test_the_planted_locus_has_the_largest_effect() -> None:
    found = {(g.layer, g.position): g for g in _grid([A, B], n=99)}
    there, elsewhere = found[1, "post_last"], found[0, "post_last"]
    assert there.cosines[0].fitted > 0.5
    assert there.cosines[0].noise_free.low > 0 > elsewhere.cosines[0].noise_free.low
    own, over, back, _ = there.transfers
    assert (own.fitted_on, own.tested_on, over.tested_on, back.fitted_on) == (A.name, A.name, B.name, B.name)
    assert min(own.auroc.low, over.auroc.low, back.auroc.low) > 0.5 >= elsewhere.transfers[0].auroc.low
    assert [e.after.estimate for e in there.erasures if e.erased == e.read] == [0.5, 0.5]


def test_json_gives_back_what_was_measured() -> None:
    third = replace(A, name="trigger", y=np.roll(A.y, 1))  # shares rows: p-values of one alone are NaN
    found = geometry_at(LOCI[1, 1], 1, "post_last", [A, B, third], n=19)
    assert [(c.a, c.b) for c in found.cosines] == [(A.name, B.name), (A.name, "trigger"), (B.name, "trigger")]
    assert [c.n_shared for c in found.cosines] == [0, len(A.within("train")), 0]
    assert len(found.transfers) == len(found.erasures) == 9
    adapter = TypeAdapter(LocusGeometry)
    plain = adapter.dump_python(found, mode="json")
    assert adapter.dump_python(adapter.validate_python(plain), mode="json") == plain
    json.dumps(plain, allow_nan=False)
    assert plain["cosines"][1]["p_a"] is None
    assert plain["transfers"][0]["auroc"]["low"] == found.transfers[0].auroc.low


def test_a_locus_is_measured_as_its_parts_are_and_rows_of_no_contrast_are_not_read() -> None:
    some = replace(B, rows=B.rows[:150], y=B.y[:150], groups=B.groups[:150], part=B.part[:150])
    absent = np.where(np.arange(400)[:, None] >= 350, np.nan, X)
    found = geometry_at(absent, 0, "inst_last", [A, some], n=19)
    assert found.cosines[0] == compare_directions(*(fit_with_null(X, c, n=19) for c in (A, some)))


def test_mistakes_name_the_locus() -> None:
    with pytest.raises(ValueError, match="layer 0, inst_last: contrasts need different names"):
        _grid([A, A])
    with pytest.raises(ValueError, match="layer 1, post_last: the rows of contrast 'normative' have NaN"):
        geometry_at(X * np.nan, 1, "post_last", [A, B], n=19)
