"""Objectives and limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.errors import InputError
from nnhw.searching.goals import FIGURES, Goals, make_limits

NETWORKS = st.lists(
    st.fixed_dictionaries({name: st.integers(0, 3).map(float) for name in ("accuracy", "cycles", "lc")}), max_size=12
)


@given(NETWORKS, st.lists(st.sampled_from(["accuracy", "cycles", "lc"]), min_size=1, max_size=3, unique=True))
def test_front_is_what_nothing_else_beats(networks: list[dict[str, float]], names: list[str]) -> None:
    goals = Goals(tuple(names))

    def better(one: dict[str, float], other: dict[str, float]) -> bool:
        pairs = [(one[name], other[name]) if FIGURES[name].more else (other[name], one[name]) for name in names]
        return all(mine >= its for mine, its in pairs) and any(mine > its for mine, its in pairs)

    front = goals.front(networks)
    beaten = {index for index, one in enumerate(networks) if any(better(other, one) for other in networks)}
    assert set(front) == set(range(len(networks))) - beaten
    firsts = [networks[index][names[0]] for index in front]
    assert firsts == sorted(firsts, reverse=FIGURES[names[0]].more)


def test_goals_name_the_limits_that_are_missed() -> None:
    goals = Goals(("accuracy",), {"rate": 1000.0, "accuracy": 0.9}, {"lc": 2000.0})
    assert goals.missed({"rate": 1000.0, "lc": 2000.0}) == []
    assert goals.missed({"rate": 999.0, "lc": 2001.0, "accuracy": 0.5}) == [
        "rate is 999, but at least 1,000 is asked for",
        "accuracy is 0.5000, but at least 0.9000 is asked for",
        "lc is 2,001, but at most 2,000 is asked for",
    ]
    assert goals.missed({"rate": 999.75, "accuracy": 0.89999}) == [
        "rate is 999.75, but at least 1,000.0 is asked for",
        "accuracy is 0.89999, but at least 0.9 is asked for",
    ]


def test_goals_ask_for_the_smallest_mapping_at_a_rate_unless_speed_is_an_objective() -> None:
    assert Goals(("accuracy", "lc"), {"rate": 1000.0}).target_fps == 1000
    assert Goals(("accuracy", "cycles"), {"rate": 1000.0}).target_fps is None
    assert Goals(("accuracy", "lc")).target_fps is None


@pytest.mark.parametrize(
    ("objectives", "limits", "message"),
    [
        ((), {}, f"a search needs an objective; give one or more of {', '.join(FIGURES)}"),
        (("accuracy", "accuracy"), {}, "objective 'accuracy' is named twice; name it once"),
        (
            ("acuracy",),
            {},
            f"there is no figure 'acuracy', the figures are {', '.join(FIGURES)}; did you mean 'accuracy'?",
        ),
        (("accuracy",), {"lc": float("nan")}, "the limit of 'lc' needs a finite number, given nan"),
    ],
)
def test_goals_reject(objectives: tuple[str, ...], limits: dict[str, float], message: str) -> None:
    with pytest.raises(InputError) as error:
        Goals(objectives, limits)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("given_texts", "message"),
    [
        (["rate"], "--at-least needs NAME=NUMBER, such as rate=20000, given 'rate'"),
        (["rate=fast"], "--at-least needs NAME=NUMBER, such as rate=20000, given 'rate=fast'"),
        (["rate=1", "rate=2"], "--at-least names 'rate' twice; name it once"),
    ],
)
def test_limits_reject(given_texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        make_limits(given_texts, "--at-least")
    assert str(error.value) == message
    assert make_limits(["rate=1e3", "dsp=0"], "--at-least") == {"rate": 1000.0, "dsp": 0.0}
