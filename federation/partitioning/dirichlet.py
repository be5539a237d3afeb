"""Label skew: each class is spread over the hospitals by a draw from a symmetric Dirichlet distribution.

Yurochkin et al., arXiv 1905.12022, section 4: for each class k draw p_k ~ Dir_J(alpha) and give hospital j the share
p_kj of its images. Hospitals then differ in size as well as in their classes.

Deviation: Hsu et al., arXiv 1909.06335, section 3, draw a mix of classes per hospital and give all the same number of
images, which cannot use up unbalanced data; here every image is used. One draw serves all three splits, so that a
hospital is tested on what it resembles, and a minimum is met by moving images.
"""

from __future__ import annotations

import numpy as np

from federation.partitioning.shares import Shares


def share_by_dirichlet(classes: int, sites: int, alpha: float, stream: np.random.Generator) -> Shares:
    """Return one Dirichlet draw per class, shape (sites, classes).

    Args:
        classes: number of classes.
        sites: number of hospitals.
        alpha: concentration; towards 0 each class sits at one hospital, towards infinity all hospitals are alike.
        stream: where the draws come from.
    """
    return Shares(values=stream.dirichlet(np.full(sites, alpha), size=classes).T)
