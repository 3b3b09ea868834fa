"""Stop sequences: exactly the text before the first one is sent, however it is split into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.choice import StopSequences

TEXTS = st.text("ab. ", max_size=20)


@given(TEXTS, st.text("ab. ", min_size=1, max_size=3), st.data())
def test_the_pieces_are_the_text_before_the_stop(text: str, stop: str, data: st.DataObject) -> None:
    stops, sent, left = StopSequences([stop]), "", text
    while left:
        n = data.draw(st.integers(1, len(left)))
        sent += stops.push(left[:n])
        left = left[n:]
        assert text[: text.find(stop) if stop in text else None].startswith(sent)
    sent += stops.rest()
    assert sent == text.split(stop)[0]
    assert stops.met == (stop in text)


def test_of_several_the_first_counts_and_no_stop_holds_nothing_back() -> None:
    stops = StopSequences(["END", "."])
    assert stops.push("it is so. END") == "it is so"
    assert stops.met
    assert stops.push("more") == stops.rest() == ""
    none = StopSequences([])
    assert [none.push("E"), none.push("ND"), none.rest()] == ["E", "ND", ""]


def test_only_what_may_become_a_stop_is_held_back() -> None:
    stops = StopSequences(["\n\nQ", "\n---"])
    assert [stops.push(piece) for piece in ("a\n", "\n", "b", "\n--", "!")] == ["a", "", "\n\nb", "", "\n--!"]
    with pytest.raises(AssertionError):  # the control: sending everything would send part of a stop sequence
        assert stops.push("\n-") == "\n-"
