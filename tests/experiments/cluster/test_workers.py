"""The executor against workers that die, fail or hang and clusters that are lost: each part's result is taken once."""

import random
from math import inf

import pytest

from extract.errors import UserError
from tests.support.fake_ray import doubled, workers

PARTS = range(12)
DOUBLED = [(place, 2 * place) for place in PARTS]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n", [1, 3])
def test_every_result_is_taken_once_whatever_happens(seed: int, n: int) -> None:
    rng, said = random.Random(seed), list[str]()
    script = {place: ["dies"] * rng.randrange(3) for place in rng.sample(PARTS, 4)}
    script[rng.choice(PARTS)] = ["loses the cluster"]
    executor = workers(script, said, n)
    assert sorted(doubled(executor, PARTS)) == DOUBLED
    assert sorted(doubled(executor, PARTS)) == DOUBLED
    assert sum("it is started again" in line for line in said) == 1
    executor.stop()
    assert all(actor.dead for actor in executor._ray.actors[-n:])


def test_what_fails_is_tried_by_one_other_worker_and_the_first_gets_no_more() -> None:
    said = list[str]()
    executor = workers({3: ["fails"]}, said)
    assert sorted(doubled(executor, PARTS)) == DOUBLED
    assert said == ["the disk is full; its work goes to others, and it gets no more"]
    assert len(executor.facts()) == 1
    for script, n in (({3: ["fails", "fails"]}, 3), ({3: ["fails"]}, 1)):
        with pytest.raises(UserError, match="the disk is full"):
            list(doubled(workers(script, [], n), PARTS))


def test_workers_that_only_die_end_the_command() -> None:
    with pytest.raises(UserError, match="5 workers died and finished nothing in between; the last one: the actor died"):
        list(doubled(workers({0: ["dies"] * 9}, [], 1), PARTS))


def test_a_worker_that_wakes_later_is_not_believed_about_the_parts_of_another_run() -> None:
    said = list[str]()
    executor = workers({2: ["hangs"]}, said, stalled_s=0.05)
    assert sorted(doubled(executor, PARTS)) == DOUBLED
    assert any("has not answered for" in line for line in said)
    for actor in executor._ray.actors:
        for call in actor.queue:
            call.hangs = False
    others = range(100, 112)
    assert sorted(doubled(executor, others)) == [(place, 200 + 2 * place) for place in PARTS]
    assert executor.each("close") == [None, None]


def test_if_all_hang_the_command_ends() -> None:
    with pytest.raises(UserError, match="all 1 workers have not answered for"):
        list(doubled(workers({0: ["hangs"]}, [], 1, stalled_s=0.05), PARTS))


@pytest.mark.parametrize("lost", [{2: 1, 9: 1}, {2: 2}])
def test_the_second_loss_of_the_cluster_ends_the_command(lost: dict[int, int]) -> None:
    executor = workers({place: ["loses the cluster"] * n for place, n in lost.items()}, [])
    with pytest.raises(UserError, match=r"no living node; what is finished is kept: give the same command again"):
        list(doubled(executor, PARTS))
    assert executor._ray.starts == 1


def test_a_part_that_kills_every_worker_is_given_up_where_that_is_asked_and_the_others_are_done() -> None:
    executor = workers({1: ["dies"] * 9, 5: ["dies"] * 9, 7: ["dies"] * 3}, [], stalled_s=inf, ahead=1)
    found = dict(doubled(executor, PARTS, give_up=lambda part, why: f"{part[0]}: {why}"))
    assert found == dict(DOUBLED) | {1: "1: the actor died", 5: "5: the actor died"}


def test_deaths_that_parts_may_be_given_up_for_do_not_end_the_command() -> None:
    """A part takes three workers along; those that die next were only starting."""
    said = list[str]()
    executor = workers({0: ["dies"] * 3}, said, 4, stalled_s=inf, ahead=1)

    def say(line: str) -> None:
        said.append(line)
        for member in executor._members if len(said) == 3 else ():
            member.actor.dead |= not member.facts

    executor._say = say
    assert sorted(doubled(executor, PARTS, give_up=lambda part, why: why)) == DOUBLED
    assert sum(line.startswith("a worker that was starting died") for line in said) >= 2
