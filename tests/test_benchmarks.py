"""Every script in benchmarks/ runs in its quick mode, and what the scripts rely on is right."""

from __future__ import annotations

import compare


def test_the_times_are_read_from_what_the_benchmarks_print() -> None:
    _, sampling = compare.BENCHMARKS["sampling"]
    before = "normal, σ = 1      5   50     5000      0.146     0.006 (    0.87)   0.0061 rejection"
    after = "normal, σ = 1      5   50     5000      0.146     0.006   0.0061 auto      11.01  176"
    assert sampling(before) == sampling(after) == {"normal, σ = 1, d=5": 0.0061}
    _, worst = compare.BENCHMARKS["worst_case"]
    assert worst('{"radius": 0.1, "ball_seconds": 0.4, "worst_case_seconds": 1.3}\n') == {
        "worst_case, radius 0.1": 1.3,
        "ball, radius 0.1": 0.4,
    }
    _, evaluation = compare.BENCHMARKS["evaluation"]
    assert evaluation("p.pdf    0.157 s   1.23 × the faster\nbare    1.0 s") == {"p.pdf": 0.157}


def test_what_is_slower_is_marked() -> None:
    lines = list(compare.ratios({"a": 1.2, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}))
    assert [line.endswith("slower") for line in lines] == [True, False, False]
    assert lines[2].endswith("only on one side: c")
