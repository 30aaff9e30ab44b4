"""How fast symjax is: one subcommand a question.

    python scripts/benchmark.py leapfrog --problems digits
    python scripts/benchmark.py gradient --problems mnist --forces float32 tensorfloat32

Each prints a table of medians and quartiles, with the device and the versions, and
writes it as JSON into `--out` (runs/benchmark). Contenders take turns, and ratios are
within one run. With `--scale tiny`, which takes seconds and shows only that it works,
goals are not judged. `chains` runs on several processes too, started by
`tpu/launch.py local`.
"""

import importlib

from symjax import hosts


NAMES = (
    "leapfrog",
    "gradient",
    "chains",
    "memory",
    "store",
    "rebasin",
    "diagnostics",
    "evaluate",
    "startup",
    "blas",
    "peers",
    "precision",
    "samplers",
    "recovery",
    "assignment",
    "infer",
)
"""Subcommands: modules of `benchmarks`, with options of the same name: `Leapfrog`."""


def main():
    """Run the subcommand that was typed."""
    hosts.start()  # Before anything is computed, as some imports do.
    import tyro
    from benchmarks import inputs

    from symjax.cli import ending

    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in NAMES}
    commands = {name: getattr(m, name.capitalize()) for name, m in modules.items()}
    chosen = tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    module = modules[type(chosen).__name__.lower()]
    with ending.explained():
        module.main(inputs.prepare(module, chosen))
    hosts.finish()


if __name__ == "__main__":
    main()
