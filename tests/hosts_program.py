"""One process of a program that runs cases on the mesh of all its processes.

Arguments: a folder; words NAME:SHAPE of a case and the mesh it runs on, or such a word
behind the address of a bucket, or NAME:SHAPE:N for N chains of a device at once; and
words OPTION=NUMBER of what is done; of these, sleep=SECONDS is how long the last
process does so in its first chunk. A run that is there goes on. Chunks are short, and
saves are frequent.
"""

import os
import sys
import time

from symjax import hosts


NUM_CHAINS = 4


def execute(name, mesh, kept, **changes):
    """Run a case on a mesh; in the tests' own process too."""
    import cases  # Its imports compute, which JAX's runtime must come before.
    import jax

    from symjax import run

    every = (*cases.SAMPLERS, *cases.APPROXIMATIONS)
    case = next(case for case in every if case.name == name)
    algorithm = case.build(cases.log_posterior(temperature=0.5))
    start = cases.start(jax.random.key(3), NUM_CHAINS)
    common = {"mesh": mesh, "store": kept, "show_progress": False}
    key, data = jax.random.key(7), cases.data()
    if case in cases.APPROXIMATIONS:
        options = {"num_steps": 15} | changes
        return run.fit(key, algorithm, start, data, **options, **common)
    options = {"num_draws": 6, "thinning": 2, "num_burn_in": 3} | changes
    return run.sample(key, algorithm, start, data, **options, **common)


def sleep_once(loop, seconds):
    keep, left = loop._keep, [seconds] * (hosts.index() == hosts.count() - 1)

    def slow(*arguments):
        if left:
            time.sleep(left.pop())
        return keep(*arguments)

    loop._keep = slow


def main(folder, *words):
    import jax

    from symjax import mesh, run, store
    from symjax.run import loop

    loop.CHUNK_SECONDS, loop.SAVE_SECONDS = 0.0, 1.0
    changes = dict(word.split("=") for word in words if ":" not in word)
    changes = {name: int(number) for name, number in changes.items()}
    sleep_once(loop, changes.pop("sleep", 0))
    for word in words:
        if ":" in word:
            path = store.place(word if "://" in word else f"{folder}/{word}")
            name, shape, *number = path.name.split(":")
            at_once = {"chains_at_once": int(number[0])} if number else {}
            made = mesh.make_mesh(NUM_CHAINS, shape=mesh.parse_shape(shape))
            is_there = hosts.share((path / "config.json").exists())
            kept = store.open(path) if is_there else run.NewRun(path)
            execute(name, made, kept, **changes, **at_once)
    print("made on", jax.process_count(), jax.device_count(), flush=True)


if __name__ == "__main__":
    heartbeat = int(os.environ["SYMJAX_HEARTBEAT_SECONDS"])
    hosts.start("auto", hosts.Timeouts(heartbeat, 10, 60))
    main(*sys.argv[1:])
    hosts.finish()
