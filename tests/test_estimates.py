"""What `--dry-run` works out for other numbers of devices."""

import math
import re

import pytest
from commands import symjax

from symjax.cli import plan
from symjax.launching import devices
from symjax.launching.devices import Chip


RING = Chip("ring", 1000.0, 100.0, 1, 8, 10.0, hop=1e-6)
WORDS = (
    "sample", "--data", "wine", "--num-chains", 3, "--hmc.num-steps", 70_248,
    "--hmc.num-warmup", 50, "--num-draws", 240, "--dry-run",
)  # fmt: skip


def test_an_all_reduce_is_that_of_a_ring_and_then_of_the_network():
    # Twice 7/8 of a GB over 100 GB/s, and 14 hops.
    ring = 2 * 7 / 8 / 100 + 14e-6
    assert devices.all_reduce_seconds(1e9, 8, RING) == pytest.approx(ring)
    assert devices.all_reduce_seconds(1e9, 1, RING) == 0
    # Two slices: each device's eighth goes out and comes back once.
    slices = ring + 1 / 8 / 10 + devices.BETWEEN_SLICES
    assert devices.all_reduce_seconds(1e9, 16, RING) == pytest.approx(slices)


def test_chains_are_spread_before_examples_are():
    def seconds(num_devices):
        return devices.gradient_seconds(0.4, 10**6, 4, num_devices, RING)

    assert seconds(1) == (1.6, 0)
    assert seconds(4) == (0.4, 0)
    # Two devices a chain: 4 MB of it.
    own, adding = seconds(8)
    assert own == 0.2
    assert adding == pytest.approx(4e6 / 100e9 + 2e-6)
    # What three devices hold of four chains is all four.
    assert seconds(3)[1] == devices.all_reduce_seconds(16e6, 3, RING)


def test_the_number_that_binds_is_the_first_power_of_two_that_does():
    number = devices.binding_number(0.01, 10**6, 1, RING)
    own, adding = devices.gradient_seconds(0.01, 10**6, 1, number, RING)
    assert adding > own
    own, adding = devices.gradient_seconds(0.01, 10**6, 1, number // 2, RING)
    assert adding <= own


def test_a_dry_run_says_what_other_devices_take(capsys):
    words = ("--estimate.devices", 1, 256, "--estimate.gradient-ms", 415)
    symjax(*WORDS, *words)
    said = capsys.readouterr().out
    assert "not measured" in said
    # Three chains of 290 x 70,248 gradients of 0.415 s: what 7,045 hours is.
    rows = {row.split()[0]: row.split()[1:] for row in said.splitlines() if row.strip()}
    assert rows["1"][0] == f"{3 * 290 * 70_248 * 0.415 / 3600:,.1f}"
    assert rows["256"][1] == f"{3 * 415 / 256:.3g}"
    own, adding = devices.gradient_seconds(0.415, 74, 3, 256, devices.H200)
    assert rows["256"][3] == f"{adding / (own + adding):.0%}"
    assert rows["256"][0] == f"{290 * 70_248 * (own + adding) / 3600:,.1f}"
    assert re.search(r"From [\d,]+ devices on", said)


def test_minutes_are_no_hours_of_zero(capsys):
    words = ("--num-draws", 1, "--hmc.num-steps", 10, "--hmc.num-warmup", 0)
    symjax(*WORDS, *words, "--estimate.devices", 1, "--estimate.gradient-ms", 415)
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    hours = next(row[1] for row in rows if row[:1] == ["1"])
    assert hours == f"{3 * 10 * 0.415 / 3600:.2g}" == "0.0035"


def test_a_measured_gradient_is_that_of_one_chain_on_one_device(monkeypatch, capsys):
    monkeypatch.setattr(plan, "_time_gradient", lambda *_: plan._Timed(0.3, 1000))
    symjax(*WORDS, "--estimate.devices", 1)
    said = " ".join(capsys.readouterr().out.split())
    found = re.search(r"mesh of (\d+) \(chains\) x (\d+) \(data\)", said)
    assert found is not None
    num_devices = math.prod(map(int, found.groups()))
    one = f"({0.1 * num_devices * 1000:.3g} ms a chain's gradient on one, as measured"
    assert f"{one} on this cpu)" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*WORDS[:-1], "--estimate.devices", 8), "`--estimate.devices`: only --dry-"),
        ((*WORDS[:-1], "--estimate.gradient-ms", 8), "`--estimate.gradient-ms`: only"),
        (
            (*WORDS[:-1], "--estimate.devices", 8, "--estimate.kind", "v5e"),
            "`--estimate.devices` and `--estimate.kind`: only",
        ),
        ((*WORDS, "--estimate.devices", 0), "devices"),
        ((*WORDS, "--estimate.devices", 427), "at most 426, so that"),
        ((*WORDS, "--estimate.gradient-ms", -1), "gradient_ms"),
        ((*WORDS, "--sampler", "sghmc", "--estimate.devices", 8), "all examples"),
    ],
)
def test_an_estimate_that_cannot_be_made_is_refused(words, said, capsys):
    symjax(*words, code=2)
    assert said in capsys.readouterr().err
