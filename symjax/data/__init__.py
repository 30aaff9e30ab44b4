"""Real data sets by name, split, normalised and checked; always the same arrays."""

from symjax.data.datasets import Dataset, load
from symjax.data.ood import OOD_NAMES, load_ood
from symjax.data.shifts import SHIFT_NAMES, load_shifted
