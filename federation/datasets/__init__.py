"""Image data sets, all read into one shape (`image_set`), whatever they come from.

Read next: `loader` (one name, one data set), then `federation.datasets.sites` (one hospital's part of it). `sites` is
not re-exported here: it builds on `federation.partitioning`, which itself speaks in this package's vocabulary.
"""

from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.loader import dataset_names, load_dataset

__all__ = ["Dataset", "DatasetInfo", "ImageSet", "Task", "dataset_names", "load_dataset"]
