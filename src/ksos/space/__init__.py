"""From samples to problems: embeddings and their distances, support points, bandwidths, and the
space of densities over which functionals are minimized.
"""

from __future__ import annotations

from ksos.space.bandwidth import (
    PER_SUPPORT_POINT,
    RULES,
    automatic_kernel,
    bandwidth_rule,
    embedding_width,
    leave_one_out,
    normal_score_correlations,
    predict_left_out,
    robust_silverman,
    subset_and_factor,
    takes_metrics,
    widest_good,
    without_outliers,
)
from ksos.space.embedding import (
    MeanEmbedding,
    Projection,
    TensorRule,
    Witness,
    evaluate,
    median_kernel,
    mmd,
    require_exact_mmd,
    sums_at,
)
from ksos.space.embedding_map import (
    SMALL_TENSOR,
    CompressedMap,
    EmbeddingMap,
    PairwiseMap,
    blocks_of,
)
from ksos.space.labeled import LabeledDensity, LabeledEmbedding
from ksos.space.mixed import MixedSpace
from ksos.space.space import Nodes, SoSSpace, finer_nodes, nodes_of
from ksos.space.support import (
    SELECTIONS,
    affordable_size,
    finest_bandwidth,
    grid,
    landmark_candidates,
    pivoted_cholesky,
    pivots,
    region,
    scattered,
    select_support,
    support_cover,
)
from ksos.space.two_sample import KernelScore, TwoSampleTest, WitnessPoint, two_sample_test

__all__ = [
    "PER_SUPPORT_POINT",
    "RULES",
    "SELECTIONS",
    "SMALL_TENSOR",
    "CompressedMap",
    "EmbeddingMap",
    "KernelScore",
    "LabeledDensity",
    "LabeledEmbedding",
    "MeanEmbedding",
    "MixedSpace",
    "Nodes",
    "PairwiseMap",
    "Projection",
    "SoSSpace",
    "TensorRule",
    "TwoSampleTest",
    "Witness",
    "WitnessPoint",
    "affordable_size",
    "automatic_kernel",
    "bandwidth_rule",
    "blocks_of",
    "embedding_width",
    "evaluate",
    "finer_nodes",
    "finest_bandwidth",
    "grid",
    "landmark_candidates",
    "leave_one_out",
    "median_kernel",
    "mmd",
    "nodes_of",
    "normal_score_correlations",
    "pivoted_cholesky",
    "pivots",
    "predict_left_out",
    "region",
    "require_exact_mmd",
    "robust_silverman",
    "scattered",
    "select_support",
    "subset_and_factor",
    "sums_at",
    "support_cover",
    "takes_metrics",
    "two_sample_test",
    "widest_good",
    "without_outliers",
]
