"""Parts of a data set."""

import jax

from symjax.data import Dataset


def first(dataset: Dataset, num_train: int | None, num_test: int | None) -> Dataset:
    """The first examples of a data set, normalised as all of it is.

    Raises:
        ValueError: if there are not so many.
    """
    cut = {}
    for part, count in {"train": num_train, "test": num_test}.items():
        examples = getattr(dataset, part)
        total = len(examples.mask)
        if count is None or count == total:
            continue
        if not 1 <= count <= total:
            raise ValueError(
                f"`--num-{part}` must lie between 1 and the {total:,} examples of "
                f"{dataset.name}, got {count:,}."
            )
        cut[part] = jax.tree.map(lambda leaf, count=count: leaf[:count], examples)
        if part == "train" and dataset.train_bytes is not None:
            cut["train_bytes"] = dataset.train_bytes[:count]
    if not cut:
        return dataset
    sizes = ", ".join(
        f"{len(cut[part].mask)} {part}" for part in ("train", "test") if part in cut
    )
    return dataset._replace(fingerprint=f"{dataset.fingerprint}, {sizes}", **cut)
