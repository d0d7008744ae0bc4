"""The words of docs/quality.md that do not depend on the numbers."""

from __future__ import annotations

__all__ = ["CELLS", "HEADER", "METHOD", "OTHER_WORDS", "WALLS", "WHY"]

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
| GMM, CV | the best of 24 such mixtures (below) by 5-fold held-out likelihood, fitted again to all samples |
| GMM stack | all of the 24, shares by 5-fold held-out likelihood (EM until 1e-6 nats are left to gain), each fitted again to all samples |
| ksos, no CV | `KernelSoSDensity()` |
| ksos, search | `KernelSoSDensityCV()`, no arguments |
| ksos, MMD | `KernelSoSDensityCV(objective="squared_mmd")` with 4 bandwidths × 3 λ, 3 folds, 200 support points |
| …, box | the same with `measure=Box(...)`, on the data sets that end at a boundary |

The 24 have 1, 2, 3, 5, 8, 12, 20, 32 components and `reg_covar` 1e-6, 3e-3, 3e-2 on standardised data, one start each.
Nobody is told anything about a data set but its samples (the box apart). The defaults of this package were chosen on other data, with one
exception: the width of the kernel in which `KernelSoSDensity()` measures MMD was chosen on other data too, but after wine, diabetes and
blobs_d10 had been looked at with three other seeds.

**Data.** The fifteen normal mixtures of Marron and Wand (Annals of Statistics 20, 1992) from their published table; in the plane two
moons, three rings, a pinwheel, two spirals, and beta marginals tied by a Clayton copula; mixtures of five elongated normal laws in 3, 5
and 10 dimensions: n = 100, 400, 1600. Iris, wine, breast cancer (5 principal components), diabetes (without its two-valued column) and
digits (10 principal components): two thirds to fit, one third to predict. Ten seeds each in a full run;
a sample is a function of data set, n and seed.

**Scores.** *Held-out log-likelihood*: mean log-density at 4000 new samples (real data: at the last third). *Integrated squared error*:
∫(p̂ − p)², by quadrature for d ≤ 2, otherwise by importance sampling with the same draws for everyone. *Squared MMD*: between p̂ and the
truth, in a Gaussian kernel whose bandwidth per feature is √(2d) standard deviations; by quadrature for d ≤ 2, otherwise against the
held-out samples, the peers in closed form and ours by 6000 draws, without bias (so it may be slightly negative). *Time*: processor
seconds on one thread. "Ahead" means a positive mean of the paired differences in held-out log-likelihood; a *cell* is a data set at one n.
Real splits overlap, so their standard errors are too small.

```sh
python benchmarks/quality run --minutes 9 --jobs 16             # measures; run again until it says that nothing is missing
python benchmarks/quality million                               # the fit of a million samples, beside the bare kernel sums
python benchmarks/quality run --cells 'mw*/400' --seeds 0-2     # a part, to a file of its own with --output
python benchmarks/quality report                                # this page (several files of records may be given)
```
"""

CELLS = """\
## Every cell

Held-out log-likelihood in nats per sample; larger is better. Differences are ours − the peer's, mean over the seeds ± standard error, bold
where we are ahead. The last column is the processor's time per fit, the choice of all parameters included.
"""

WHY = """\
*Gaussian mixtures are the home ground of a GMM.* The Marron–Wand laws and the blobs are mixtures of at most ten normal laws. With n = 1600
a GMM of the right size is the truth up to the noise of a few dozen numbers; nothing is left to correct, and whoever looks for a correction
pays for looking.

*Small samples.* With n = 100 every choice (size, floor, bandwidth, λ, shares) is made on folds of twenty samples; what that choice costs is
of the order of what the better model gains, and differences within two standard errors go in either direction.

*Differences of tens or hundreds of nats* to the GMM by BIC are its failures, not our merit: it has no floor under its covariances but 1e-6
and too few samples for them (ten features, n = 100). The stack has floors, and is the peer to look at.

*Without a search*, `KernelSoSDensity()` is a fit in MMD with one kernel for the whole space, and so is SciPy's KDE: where one kernel must
serve narrow and wide parts at once, both are far from the mixtures.

*The fit in MMD* does not look at the likelihood at all: its density may be low where held-out samples are rare. It is for signed
targets and distances; against outliers, the criterion that chooses the bandwidth matters more ([what 20 % of them do](outliers.md)).
"""

WALLS = """\
## Boundaries

Estimators on the whole line lose mass beyond a boundary and bend down in front of it. A box as measure leaves nothing outside: the mass
there is zero by construction, and the density is free to be as high at the boundary as the samples say. """

OTHER_WORDS = """\
## Other data

The same contest on data that no setting was chosen on and no goal speaks of (`run --other --seeds 0-2`): made-up tables whose features are
tied by proportions, powers, seasons and kinds; a Student law with four degrees of freedom; a rolled-up sheet; a response surface
(n = 200 and 1000); and more of what comes with scikit-learn: exercises of twenty men, the ten means of the breast cancer data as they are,
four principal components of the digits.
"""
