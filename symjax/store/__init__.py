"""The run directory: what survives when the machine does not.

A run is a folder:

    config.json   resolved configuration, plan, package versions, devices, git commit
    draws/        one zarr v3 array a leaf of the params pytree, (chain, draw, ...)
    warmup/       one draw of each chain, from before the first that counts
    info/         one zarr v3 array a field of the sampler's Info, (chain, iteration)
    state/        the sampler's state and keys, an Orbax checkpoint a commit
    commit.json   how many iterations and draws count
    fitted.json   what an approximation says of its members, such as their evidence
    predictions/  what its draws predict on named inputs, made by an evaluation
    lock          who writes the run at the moment

Draws and Info are on the disk before the state is saved, and the state before
`commit.json` is replaced, in one atomic step; the chains go on while a state is being
saved. So whenever the process is killed, the
record, the state and the draws agree; what lies past the record is not read, and is
overwritten when the run goes on. The states of the three newest commits are kept.

The folder may be that of a bucket, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER: the same
objects then, but for the states, which are arrays too; see `store.buckets`.

What others need of a finished reference is one file, see `bundles`.
"""

from symjax.store.buckets import Bucket, Place, place
from symjax.store.bundles import Bundle, is_bundle, read_bundle, write_bundle
from symjax.store.commits import Commit
from symjax.store.directory import claim, create, create_on_first, open
from symjax.store.environment import describe as describe_environment
from symjax.store.export import export_arviz, export_npz
from symjax.store.files import (
    StoreError,
    explained,
    flatten,
    local,
    read_json,
    remove,
    write_json,
    write_text,
)
from symjax.store.leaves import StoredLeaf
from symjax.store.lock import hold
from symjax.store.outputs import (
    StoredPredictions,
    blocks,
    open_predictions,
    read_averages,
    write_averages,
)
from symjax.store.predictions import read_gaussians, read_probs, require_probs
from symjax.store.runs import Run
