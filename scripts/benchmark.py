"""How fast symjax is: one subcommand a question.

    python scripts/benchmark.py leapfrog --problems digits
    python scripts/benchmark.py gradient --problems mnist --forces highest tensorfloat32

Each prints a table of medians and quartiles, with the device and the versions, and
writes it as JSON into `--out` (runs/benchmark). Ratios are within one run, in turns.
`--scale tiny` takes seconds and shows only that it works. The subcommands `chains` runs
on several processes too, started by `tpu/launch.py local`.
"""

from symjax import hosts


def main():
    """Run the subcommand that was typed."""
    hosts.start()  # Before anything is computed, as some imports do.
    import tyro
    from benchmarks import (
        leapfrog,
    )

    modules = {
        leapfrog.Leapfrog: leapfrog,
    }
    commands = {kind.__name__.lower(): kind for kind in modules}
    chosen = tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    modules[type(chosen)].main(chosen)
    hosts.finish()


if __name__ == "__main__":
    main()
