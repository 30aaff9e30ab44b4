"""Where chains and data live: a mesh of devices with the axes `("chain", "data")`.

Several chains on one device are vmapped; one chain over several devices shares the
examples out between them. Everything that runs on the mesh runs inside one
`shard_map` over both axes (`map_chains`), so that a log density over sharded data must
sum its per-device part once, with `sum_over_data`. Outside the mesh that is the
identity, and the same code works on one device.

Code of one chain may look at the others inside `vmap_chains`: `sum_over_chains`,
`gather_chains`, `chain_index`. A chain that runs outside it is alone.

A chain's numbers are bit for bit the same wherever it runs, on devices of one kind, if
as many chains are computed together and none is split over two devices. Together are
all chains of a device, or as many as `chains_at_once` says: with the same number, 1 for
example, draws are the same on every mesh whose data axis has one device. Otherwise
products of one chain and of several, and sums in another order, are rounded
differently, and long chains part in time.

The devices may be those of several hosts, which all run the same program. A host then
reads the values of its own chains (`read_own`), or all hosts together read all of them
(`read_all`).
"""

from symjax.mesh.chains import (
    ChainsMeet,
    chain_index,
    gather_chains,
    knows_chains,
    map_chains,
    num_chains,
    same_in_all_chains,
    sum_over_chains,
    vmap_chains,
)
from symjax.mesh.examples import (
    NO_EXAMPLE,
    count_examples,
    differs_along_data,
    gather_over_data,
    num_rows,
    row_numbers,
    sum_over_data,
    take,
    take_every,
)
from symjax.mesh.groups import check_groups, compile_for_chains
from symjax.mesh.layout import make_mesh, parse_shape, place_chains, place_data
from symjax.mesh.reading import Own, read_all, read_own
