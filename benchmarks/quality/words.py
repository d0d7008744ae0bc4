"""The words of the report that do not depend on the numbers."""

from __future__ import annotations

__all__ = ["CELLS", "HEADER", "METHOD", "OTHER_WORDS", "WALLS", "WHY"]

HEADER = """\
# Quality

How well do densities that are fitted without manual tuning predict new data? This page compares
`ksos` with the estimators that people use, on known densities and on real data.
`python benchmarks/quality report` writes it from the records of `python benchmarks/quality run`.
"""

METHOD = """\
## Method

| method | what runs |
|---|---|
| KDE, CV | scikit-learn's `KernelDensity` on standardized data, bandwidth by 5-fold \
cross-validation over 40 values from 0.01 to 2 |
| SciPy KDE | `gaussian_kde` with its default, Scott's rule times the full covariance |
| GMM, BIC | scikit-learn's `GaussianMixture`, full covariances, 1 to 12 components by BIC, three \
starts each |
| GMM, CV | the best of 24 such mixtures by 5-fold held-out likelihood, refitted to all samples |
| GMM stack | all 24 mixtures, weighted by 5-fold held-out likelihood, each refitted to all \
samples |
| ksos, no CV | `KernelSoSDensity()` |
| ksos, search | `KernelSoSDensityCV()`, no arguments |
| ksos, MMD | `KernelSoSDensityCV(objective="squared_mmd")` with 4 bandwidths × 3 λ, 3 folds, 200 \
support points |
| …, box | the same with `measure=Box(...)`, on the data sets with a boundary |

The 24 mixtures have 1, 2, 3, 5, 8, 12, 20, 32 components and `reg_covar` 1e-6, 3e-3, 3e-2 on
standardized data, one start each. Every method sees only the samples, and the box where it is
named. The defaults of ksos were chosen with other seeds, 100 to 102, of these data sets and of
those in the section Other data.

**Data.** The fifteen normal mixtures of Marron and Wand (Annals of Statistics 20, 1992). In the
plane: two moons, three rings, a pinwheel, two spirals, and beta marginals with a Clayton copula.
Mixtures of five elongated normal distributions in 3, 5 and 10 dimensions. These have n = 100,
400, 1600. Real data: iris, wine, breast cancer (5 principal components), diabetes (without its
two-valued column) and digits (10 principal components), two thirds to fit and one third to
predict. There are ten seeds each. A sample is a function of data set, n and seed.

**Scores.** *Held-out log-likelihood*: the mean log-density at 4,000 new samples, or at the last
third of real data. *Integrated squared error*: ∫(p̂ − p)², by quadrature for d ≤ 2, otherwise by
importance sampling with the same draws for all methods. *Squared MMD*: between p̂ and the truth,
in a Gaussian kernel whose bandwidth per feature is √(2d) standard deviations. It is computed by
quadrature for d ≤ 2, otherwise against the held-out samples without bias, so it may be slightly
negative. *Time*: processor seconds on one thread. "Ahead" means a positive mean of the paired
differences in held-out log-likelihood. A *cell* is a data set at one n. Real splits overlap, so
their standard errors are too small.

```sh
python benchmarks/quality run --minutes 9 --jobs 16             # measures; repeat until nothing \
is missing
python benchmarks/quality million                               # a fit of a million samples, \
beside the bare kernel sums
python benchmarks/quality run --cells 'mw*/400' --seeds 0-2     # a part, to a file of its own \
with --output
python benchmarks/quality report                                # the report, from one or more \
files of records
```
"""

CELLS = """\
## Every cell

Held-out log-likelihood in nats per sample. Larger is better. Differences are ksos minus the other
method, mean over the seeds ± standard error, bold where ksos is ahead. The last column is
processor time per fit, including the choice of all parameters.
"""

WHY = """\
*Gaussian mixtures are the home ground of a GMM.* The Marron–Wand densities and the blobs are
mixtures of at most ten normal distributions. With n = 1600, a GMM of the right size is the truth
up to the noise of a few dozen numbers. Extra flexibility only adds variance.

*Small samples.* With n = 100, every choice is made on folds of ten samples. The cost of that
choice is of the order of what the better model gains, and differences within two standard errors
go in either direction.

*Differences of tens or hundreds of nats* to the GMM by BIC are failures of the GMM: it has no
floor under its covariances but 1e-6, and too few samples for them (ten features, n = 100). The
stack has floors, and is the baseline to compare with.

*Without a search*, `KernelSoSDensity()` is a fit in MMD with one kernel for the whole space, as
is SciPy's KDE. If one kernel must serve narrow and wide parts at once, both are far from the
mixtures. The page on density estimation describes what a fit in MMD is for.
"""

WALLS = """\
## Boundaries

Estimators on the whole line lose mass beyond a boundary and bend down in front of it. With a box
as measure, the mass outside is zero by construction, and the density can be as high at the
boundary as the samples suggest. """

OTHER_WORDS = """\
## Other data

The same comparison on further data (`run --other --seeds 0-2`): simulated tables with
proportions, powers, seasons and groups, a Student distribution with four degrees of freedom, a
rolled-up sheet, a response surface (n = 200 and 1000), and more of the data that come with
scikit-learn: exercises of twenty men, the ten means of the breast cancer data, four principal
components of the digits.
"""
