"""Files of probabilities: what is read, and what is refused by name, row and sum."""

import numpy as np
import pytest

from symjax import store


PROBS = np.random.default_rng(0).dirichlet(np.ones(4), 6)


def test_reads_text_and_archives(tmp_path):
    lines = {
        "spaces.txt": "\n".join(" ".join(map(repr, row)) for row in PROBS.tolist()),
        "commas.csv": "\r\n".join(",".join(map(repr, row)) for row in PROBS.tolist()),
        "both.csv": "\n\n".join(",\t ".join(map(repr, r)) for r in PROBS.tolist()),
    }
    for name, text in lines.items():
        (tmp_path / name).write_text(text + "\n")
        np.testing.assert_array_equal(store.read_probs(tmp_path / name)[0, 0], PROBS)
    np.savez(tmp_path / "one.npz", p=PROBS.astype(np.float32))
    np.savez(tmp_path / "two.npz", p=PROBS, q=PROBS[:2])
    found = store.read_probs(tmp_path / "one.npz")
    assert found.dtype == float
    np.testing.assert_allclose(found[0, 0], PROBS, rtol=1e-6)
    assert store.read_probs(f"{tmp_path}/two.npz:q").shape == (1, 1, 2, 4)
    of_draws = np.stack([PROBS, PROBS[::-1]])[None].repeat(3, axis=0)
    np.savez(tmp_path / "draws.npz", of_draws)
    np.testing.assert_array_equal(store.read_probs(tmp_path / "draws.npz"), of_draws)
    np.savetxt(tmp_path / "printed.txt", PROBS, fmt="%.4f")
    np.testing.assert_allclose(
        store.read_probs(tmp_path / "printed.txt")[0, 0], PROBS, atol=1e-4
    )


@pytest.mark.parametrize(
    ("decimals", "num_classes"), [(2, 2), (2, 10), (3, 2), (3, 10), (4, 100)]
)
def test_printed_decimals_say_how_far_sums_may_be_off(tmp_path, decimals, num_classes):
    """Against Python's own rounding; the rows stay as they are."""
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.full(num_classes, 5.0), 2000)
    # Every number half a unit above its last decimal, but for the first.
    odd = np.full(
        num_classes, (round(0.9 / num_classes, decimals) + 0.5 / 10**decimals)
    )
    odd[0] += 1 - odd.sum()
    printed = np.array(
        [[float(f"{p:.{decimals}f}") for p in row] for row in [*rows, odd - 1e-9]]
    )
    sums = printed.sum(axis=1)
    assert num_classes == 2 or abs(sums - 1).max() > 1.5e-3
    np.savetxt(tmp_path / "p.csv", printed, fmt=f"%.{decimals}f", delimiter=",")
    np.savez(tmp_path / "p.npz", p=printed.astype(np.float32))
    found = store.read_probs(tmp_path / "p.csv")[0, 0]
    np.testing.assert_array_equal(found, printed)
    np.testing.assert_allclose(
        store.read_probs(tmp_path / "p.npz")[0, 0], printed, rtol=1e-6
    )


def test_no_more_is_forgiven_than_rounding_may_do(tmp_path):
    tenths, twentieths = "0.100 " * 9, "0.05 " * 19
    for text, message in {
        "0.499 0.500": None,
        "0.498 0.500": "sum 0.998",
        "0.499000 0.500": None,
        "0.4990001 0.4999": "sum 0.9989",
        f"{tenths} 0.105": None,
        f"{tenths} 0.094": "sum 0.994",
        f"{tenths} 0.106": "sum 1.006",
        # Of twenty classes two decimals could hide anything.
        f"{twentieths} 0.10": None,
        f"{twentieths} 0.11": "sum 1.06",
        # What was printed as 0 was none below it, to make room for the others.
        "1.005 0" + " 0.000" * 8: "sum 1.005",
        "0.50 0.55" + " 0" * 8: "sum 1.05",
        "0.50 0.51" + " 0" * 8: None,
        "0.50 0.45" + " 0" * 8: None,
        "1.02 -0.02": "smallest value is -0.02",
        "0.9 0.2": "sum 1.1",
        "inf 0.2": "sum inf",
        "0 1\n0 2": "row 2 .*sum 2",
    }.items():
        (tmp_path / "p.txt").write_text(text)
        if message is None:
            store.read_probs(tmp_path / "p.txt")
            continue
        with pytest.raises(store.StoreError, match=message):
            store.read_probs(tmp_path / "p.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5 0.5\n0.2 0.7\n0.1 0.1", r"bad.txt: row 2 .*sum 0.9. So are 2 of 3 rows"),
        ("0.5 0.5\n0.5 0.498", "bad.txt: row 2 .*its sum 0.998. So are 1 of 2 rows"),
        ("0.5 0.5\n1.2 -0.2", "bad.txt: row 2 .*smallest value is -0.2"),
        ("0.5 0.5\nnan 0.5", "bad.txt: row 2 must be probabilities"),
        ("a b\n0.5 0.5", "bad.txt: line 1 must be numbers.*no header"),
        ("0.5 0.5\n1", "bad.txt: line 2 has 1 values where the first has 2"),
        ("1\n1", r"two classes or more.* its shape is \(2, 1\)"),
        ("", "its shape is"),
    ],
)
def test_what_is_no_table_of_probabilities_is_refused(tmp_path, text, message):
    (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(store.StoreError, match=message):
        store.read_probs(tmp_path / "bad.txt")


def test_archives_without_the_array_are_refused(tmp_path):
    np.savez(tmp_path / "two.npz", p=PROBS, q=PROBS, r=np.array(["a"]))
    for path, message in [
        (tmp_path / "two.npz", r"the arrays p, q, r; say which one as .*two.npz:NAME"),
        (f"{tmp_path}/two.npz:s", "the arrays p, q, r; there is no 's'"),
        (f"{tmp_path}/two.npz:r", "can't be read as an array"),
        (tmp_path / "none.npz", "There is no file .*none.npz"),
        (tmp_path, "There is no file"),
    ]:
        with pytest.raises(store.StoreError, match=message):
            store.read_probs(path)
    (tmp_path / "broken.npz").write_bytes(b"PK no archive")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.npz").write_bytes(b"")
    for name in ("broken.npz", "bytes.txt", "empty.npz"):
        with pytest.raises(store.StoreError, match=f"{name} can't be read"):
            store.read_probs(tmp_path / name)


def test_reads_means_and_their_noise(tmp_path):
    mean, std = np.arange(24.0).reshape(2, 3, 4), np.ones((2, 3, 4))
    np.savez(tmp_path / "a.npz", mean=mean, std=std, **{"b/mean": mean[0, :, 0]})
    found = store.read_gaussians(tmp_path / "a.npz", 4)
    np.testing.assert_array_equal(found[0], mean[:, None])
    np.testing.assert_array_equal(found[1], std[:, None])
    found, none = store.read_gaussians(f"{tmp_path}/a.npz:b", 1)
    assert (found.shape, none) == ((1, 1, 3, 1), None)
    table = np.hstack([mean[0], std[0] + 1])
    np.savetxt(tmp_path / "a.txt", table)
    found = store.read_gaussians(tmp_path / "a.txt", 4)
    np.testing.assert_array_equal(np.squeeze(found), [mean[0], std[0] + 1])
    assert store.read_gaussians(tmp_path / "a.txt", 8)[1] is None


def test_what_is_no_gaussian_is_refused_by_row(tmp_path):
    mean, std = np.zeros((2, 3, 4, 1)), np.ones((2, 3, 4, 1))
    std[1, 2, 3] = 0
    archive = {"mean": mean, "std": std, "n/mean": mean + np.nan, "s/mean": mean[:1, 0]}
    np.savez(
        tmp_path / "a.npz", **archive, **{"s/std": mean, "t/mean": mean[0, 0, 0, 0]}
    )
    np.savetxt(tmp_path / "a.txt", np.ones((3, 3)))
    for path, message in {
        "a.npz": r"row 4 of chain 1 of draw 2 must have a `std` that is finite and "
        r"above 0, got \[0.\]. So are 1 of 24 rows",
        "a.npz:n": "row 1 of chain 0 of draw 0 must have a `mean` that is finite, got",
        "a.npz:s": r"`std` must have the shape of `mean`, \(1, 4, 1\), got \(2, 3, 4",
        "a.npz:t": r"must be \(example, output\), .* its shape is \(\)",
        "a.npz:x": "must hold an array 'x/mean', and 'x/std' .*; it holds mean, std, n",
        "a.txt": r"so that there are 1 or 2 columns; its shape is \(3, 3\)",
        "none.npz": "There is no file",
    }.items():
        with pytest.raises(store.StoreError, match=message):
            store.read_gaussians(f"{tmp_path}/{path}", 1)
