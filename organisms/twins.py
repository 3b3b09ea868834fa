"""Which strangers are asked what, so that the questions say as much as they can: few share a stranger or a twin."""

from __future__ import annotations

from itertools import chain, product

Edge = tuple[int, int]  # stranger, question


def spread(n_strangers: int, n_questions: int, wanted: int) -> list[Edge]:
    """Choose pairs of a stranger and a question, each pair once, in as small linked groups as possible.

    Two pairs are linked if they share a stranger or a question. Each next pair is the one after which the sum of the
    squared sizes of linked groups is least (the effective number of groups is the squared sum over it, Kish 1965).

    Returns:
        `wanted` pairs, or all there are.
    """
    left = list(product(range(n_strangers), range(n_questions)))
    left.sort(key=lambda edge: ((edge[1] - edge[0]) % n_questions, edge[0]))
    groups: list[list[Edge]] = []
    for _ in range(min(wanted, len(left))):
        best = min(left, key=lambda edge: _grown(groups, edge))
        left.remove(best)
        joined = [group for group in groups if _linked(group, best)]
        groups = [group for group in groups if group not in joined] + [[best, *chain(*joined)]]
    return sorted(chain(*groups))


def _grown(groups: list[list[Edge]], edge: Edge) -> int:
    """Return by how much the sum of squared sizes grows with one more pair."""
    joined = [len(group) for group in groups if _linked(group, edge)]
    return (1 + sum(joined)) ** 2 - sum(size**2 for size in joined)


def _linked(group: list[Edge], edge: Edge) -> bool:
    return any(stranger == edge[0] or question == edge[1] for stranger, question in group)
