"""The geometry of every locus gives flat rows for JSON and Parquet."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pyarrow
import pytest

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


def test_rows_are_flat_and_go_into_json_and_parquet() -> None:
    tables = [g.tables() for g in _grid([A, B])]
    rows = {name: [row for t in tables for row in t[name]] for name in tables[0]}
    assert {name: len(r) for name, r in rows.items()} == {"cosines": 4, "angles": 4, "transfers": 16, "erasures": 16}
    json.dumps(rows, allow_nan=False)
    for table in rows.values():
        assert len({tuple(row) for row in table}) == 1
        assert pyarrow.Table.from_pylist(table).num_rows == len(table)
        assert {"layer", "position", "p"} <= set(table[0])
    assert {"fitted", "noise_free", "noise_free_low", "noise_free_high", "null_95"} <= set(rows["cosines"][0])
    assert isinstance(rows["angles"][0]["angles"], list)


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
