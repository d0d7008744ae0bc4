"""Tables of any make give the same fit, and answers that are asked for as frames have its make."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import ksos


def data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(60, 2)).round(2), columns=["a", "b"])


class Stream:
    """A table of a library that nobody knows: it gives an Arrow stream and nothing else."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def of_pyarrow(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("pyarrow").table(frame.to_dict("list"))


def of_polars(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").DataFrame(frame.to_dict("list"))


MAKES: dict[str, tuple[str, Callable[[pd.DataFrame], Any]]] = {
    "pandas": ("pandas", lambda frame: frame),
    "nullable": ("pandas", lambda frame: frame.convert_dtypes(dtype_backend="numpy_nullable")),
    "Arrow-backed": ("pandas", lambda frame: frame.convert_dtypes(dtype_backend="pyarrow")),
    "polars": ("polars", of_polars),
    "polars, lazy": ("polars", lambda frame: of_polars(frame).lazy()),
    "pyarrow": ("pyarrow", of_pyarrow),
    "pyarrow, a batch": ("pyarrow", lambda frame: of_pyarrow(frame).to_batches()[0]),
    "duckdb": ("duckdb", lambda frame: pytest.importorskip("duckdb").from_df(frame)),
    "another": ("pandas", lambda frame: Stream(of_pyarrow(frame))),
}


@pytest.fixture(params=MAKES)
def table(request: pytest.FixtureRequest) -> tuple[str, Any]:
    make, convert = MAKES[request.param]
    if request.param == "Arrow-backed":
        pytest.importorskip("pyarrow")
    return make, convert(data())


def quick() -> ksos.KernelSoSDensity:
    return ksos.KernelSoSDensity(bandwidth=1.5, n_support=10, tol=1e-4)


def test_fits_and_questions_are_those_of_an_array(table: tuple[str, Any]) -> None:
    X, rows = table[1], data().to_numpy()
    expected = quick().fit(rows)
    found = quick().fit(X)
    p = found.distribution_
    assert p.feature_names == ("a", "b")
    np.testing.assert_allclose(p.logpdf(X), expected.distribution_.logpdf(rows), rtol=1e-9)
    np.testing.assert_allclose(found.score(X), expected.score(rows), rtol=1e-9)
    assert ksos.mmd(X, data()) == pytest.approx(0.0, abs=1e-9)
    y = rows[:, 0] + np.random.default_rng(1).normal(size=60)
    est = ksos.KernelSoSConditional(LinearRegression(), "constant", given=None, estimator=quick())
    other = ksos.KernelSoSConditional(LinearRegression(), "constant", given=None, estimator=quick())
    np.testing.assert_allclose(
        est.fit(X, y).predict_quantile(X, 0.3), other.fit(data(), y).predict_quantile(data(), 0.3)
    )
    chunked = quick().fit(ksos.chunks([X])).distribution_
    assert chunked.feature_names == ("a", "b")


def test_frames_have_the_make_of_the_table(table: tuple[str, Any]) -> None:
    make, X = table
    p = quick().fit(X).distribution_
    for q in (p, p.marginal(["b", "a"])):
        frames = (
            q.rvs(3, 0, as_frame=True),
            q.cov(as_frame=True),
            q.mode(all_local=True, as_frame=True),
        )
        for frame in (*frames, q.mean(as_frame=True), q.mode(as_frame=True)):
            assert type(frame).__module__.lstrip("_").startswith(make)
        drawn = frames[0]
        columns = drawn.column_names if make == "pyarrow" else drawn.columns
        assert list(columns) == list(q.feature_names)
        values = drawn.fetchall() if make == "duckdb" else np.asarray(drawn)
        if make == "pyarrow":
            values = np.stack([column.to_numpy() for column in drawn.columns], axis=1)
        np.testing.assert_array_equal(values, q.rvs(3, 0))


@pytest.mark.parametrize("name", MAKES)
def test_what_is_not_a_number_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"column 'a' holds text such as 'x'"):
        quick().fit(MAKES[name][1](data().assign(a=["x", "y"] * 30)))


def test_columns_of_the_same_name_raise() -> None:
    relation = pytest.importorskip("duckdb").sql("select 1.0 as a, 2.0 as a")
    with pytest.raises(ValueError, match="columns of the same name: 'a'"):
        quick().fit(relation)


def test_a_stream_without_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(of_pyarrow(data()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'Stream needs pyarrow.*"kernel-sos\[arrow\]"'):
        quick().fit(stream)
