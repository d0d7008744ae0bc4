"""The words of docs/quality.md that do not depend on the numbers."""

from __future__ import annotations

__all__ = ["HEADER", "METHOD", "WALLS", "WHY"]

HEADER = """\
# Quality

How well do densities fitted without tuning by hand predict data they have not seen? This page sets `ksos` beside the estimators that
people use, on densities that are known and on real data. It is written by `python benchmarks/quality report` from the records of `python
benchmarks/quality run`.
"""

METHOD = """\
## Method

| contestant | what runs |
|---|---|
| KDE, CV | scikit-learn's `KernelDensity` on standardised data, the bandwidth by 5-fold cross-validation over 40 values from 0.01 to 2 |
| SciPy KDE | `gaussian_kde` as it comes: Scott's rule times the full covariance |
| GMM, BIC | scikit-learn's `GaussianMixture`, full covariances, 1 to 12 components chosen by BIC, three starts each |
| ksos, no CV | `KernelSoSDensity()` |
| ksos, MMD | `KernelSoSDensityCV(objective="squared_mmd")` with 4 bandwidths × 3 λ, 3 folds, 200 support points |
| ksos, likelihood | `KernelSoSDensityCV()`, no arguments |
| …, box | the same with `measure=Box(...)`, on the data sets that end at a boundary |

Nobody is told anything about a data set but its samples (the box apart).

**Data.** The fifteen normal mixtures of Marron and Wand (Annals of Statistics 20, 1992) from their published table; in the plane two
moons, three rings, a pinwheel, two spirals, and beta marginals tied by a Clayton copula; mixtures of five elongated normal laws in 3, 5
and 10 dimensions: n = 100, 400, 1600. Iris, wine, breast cancer (5 principal components), diabetes (without its two-valued column) and
digits (10 principal components): two thirds to fit, one third to predict. Ten seeds each in a full run;
a sample is a function of data set, n and seed.

**Scores.** *Held-out log-likelihood*: mean log-density at 4000 new samples (real data: at the last third). *Integrated squared error*:
∫(p̂ − p)², by quadrature for d ≤ 2, otherwise by importance sampling with the same draws for everyone. *Squared MMD*: between p̂ and the
truth, in a Gaussian kernel whose bandwidth per feature is √(2d) standard deviations; by quadrature for d ≤ 2, otherwise in closed form
against the held-out samples, without bias (so it may be slightly negative). *Time*: processor seconds on one thread. "Ahead" means a
positive mean of the paired differences in held-out log-likelihood; a *cell* is a data set at one n. Real splits overlap, so their
standard errors are too small.

**These records** were made on one machine, sixteen pieces at a time, but for those of `ksos, no CV`, `ksos, MMD` and two of `ksos,
likelihood` (blobs_d10, n = 1600), which another machine made two at a time: compare their times roughly. Since the first were made, fits by
likelihood have become faster where samples lie far apart (those two took 50 s each, the other eight 77 to 549 s). The search in MMD was not
run at n = 1600.

```sh
python benchmarks/quality run --minutes 9 --jobs 16             # measures; run again until it says that nothing is missing
python benchmarks/quality run --cells 'mw*/400' --seeds 0-2     # a part, to a file of its own with --output
python benchmarks/quality report                                # this page (several files of records may be given)
```
"""

WHY = """\
*Gaussian mixtures are the GMM's home ground.* On the Marron–Wand set, on the blobs and on real data made of a few normal-looking classes
(iris, breast cancer) it estimates a few dozen numbers where we estimate a function, and wins by what that costs; the more so where
components are turned against each other, or features are tied to each other (diabetes): one bandwidth per feature cannot follow them,
while every component of a GMM has a covariance of its own. Where
it has too few samples for its covariances (ten features, n = 100) it collapses: differences of tens or hundreds of nats are its failures,
not our merit.

*One bandwidth for the whole space.* Spikes of width 0.01 beside bumps of width 0.7 (the claws and combs) ask for two resolutions at once;
a sum of squares with one kernel, like a KDE, must choose one.

*Small samples.* With n = 100 a bandwidth, a λ and the shares of a mixture are chosen by folds of ten samples; what that choice costs is of
the order of what the better model gains, and the differences to KDE are within their errors in either direction.

*Without a search*, `KernelSoSDensity()` is a fit in MMD with one bandwidth per feature. SciPy's KDE turns its kernel with the covariance of
the samples, and is ahead where features are tied to each other (diabetes, wine, digits, iris) and where a hundred samples do not show what
is there; it smooths over what comes in clusters, where we are ahead. Samples far from all others do not count in our choice of bandwidth:
that keeps outliers from widening it, and costs on long tails (a lognormal law: 0.06 to 0.4 nats behind SciPy's KDE for n = 50, 200, 500,
with standard errors of 0.1 to 0.4).

*The fit in MMD* does not look at the likelihood at all: its density may be low where held-out samples are rare. It is for signed
targets and distances; against outliers, the criterion that chooses the bandwidth matters more ([what 20 % of them do](outliers.md)).
"""

WALLS = """\
## Boundaries

Estimators on the whole line lose mass beyond a boundary and bend down in front of it. A box as measure leaves nothing outside: the mass
there is zero by construction, and the density is free to be as high at the boundary as the samples say. """
