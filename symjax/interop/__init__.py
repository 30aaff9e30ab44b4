"""Densities, samples and checkpoints from elsewhere."""

from symjax.interop.checkpoints import Checkpoint, read, suggest_model
from symjax.interop.densities import Density, Model, from_function, from_numpyro
from symjax.interop.pickles import read_pickle
from symjax.interop.safetensors import read_safetensors
