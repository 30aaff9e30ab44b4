"""How fast symjax is: one subcommand a question.

    python scripts/benchmark.py leapfrog --problems digits
    python scripts/benchmark.py gradient --problems mnist --forces float32 tensorfloat32

Each prints a table of medians and quartiles, with the device and the versions, and
writes it as JSON into `--out` (runs/benchmark). Contenders take turns, and ratios are
within one run. With `--scale tiny`, which takes seconds and shows only that it works,
goals are not judged. `chains` runs on several processes too, started by
`tpu/launch.py local`.
"""

from symjax import hosts


def main():
    """Run the subcommand that was typed."""
    hosts.start()  # Before anything is computed, as some imports do.
    import tyro
    from benchmarks import (
        assignment,
        blas,
        chains,
        diagnostics,
        evaluate,
        gradient,
        infer,
        inputs,
        leapfrog,
        memory,
        peers,
        precision,
        rebasin,
        recovery,
        samplers,
        startup,
        store,
    )

    from symjax.cli import ending

    modules = {
        leapfrog.Leapfrog: leapfrog,
        gradient.Gradient: gradient,
        chains.Chains: chains,
        memory.Memory: memory,
        store.Store: store,
        rebasin.Rebasin: rebasin,
        diagnostics.Diagnostics: diagnostics,
        evaluate.Evaluate: evaluate,
        startup.Startup: startup,
        blas.Blas: blas,
        peers.Peers: peers,
        precision.Precision: precision,
        samplers.Samplers: samplers,
        recovery.Recovery: recovery,
        assignment.Assignment: assignment,
        infer.Infer: infer,
    }
    commands = {kind.__name__.lower(): kind for kind in modules}
    chosen = tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    module = modules[type(chosen)]
    with ending.explained():
        module.main(inputs.prepare(module, chosen))
    hosts.finish()


if __name__ == "__main__":
    main()
