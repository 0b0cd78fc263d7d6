"""The torture's books: what a seed stands for."""

from __future__ import annotations

from .torture import AS_ROOT, DAMAGED, DAMAGES, KILLS, OTHERS, faults_of

EVERYTHING = sorted(
    [
        *(name for name, number in KILLS.items() for _ in range(number)),
        *(f"{target} {damage}" for target in DAMAGED for damage in DAMAGES),
        *OTHERS,
        *AS_ROOT,
    ]
)


def test_a_seed_stands_for_the_same_faults_in_the_same_order():
    assert faults_of(3) == faults_of(3) != faults_of(4)
    assert faults_of(3, 5) == faults_of(3)[:5]
    assert sum(KILLS.values()) >= 20
    assert sorted({*faults_of(3), *AS_ROOT}) == sorted(set(EVERYTHING))
