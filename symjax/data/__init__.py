"""Real data sets by name, split, normalised and checked; always the same arrays."""

from symjax.data.datasets import Dataset, load
