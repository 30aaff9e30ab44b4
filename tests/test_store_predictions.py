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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5 0.5\n0.2 0.7\n0.1 0.1", r"bad.txt: row 2 .*sum 0.9. So are 2 of 3 rows"),
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
