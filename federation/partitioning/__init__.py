"""How a simulation divides one data set among hospitals.

Read next: `assignment` (what every method shares), then the method at hand (`iid`, `dirichlet`, `classes`, `quantity`).
"""

from federation.partitioning.assignment import SiteIndices, assign, check_split_sizes, partition

__all__ = ["SiteIndices", "assign", "check_split_sizes", "partition"]
