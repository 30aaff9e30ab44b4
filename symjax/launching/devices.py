"""Devices and the links between them: what many of them make of one gradient, on paper.

Bandwidths of TPUs are those of docs.cloud.google.com/tpu/docs/v5e and /v5p. One
microsecond a hop and 200 between slices are assumptions. An H200 sends 450 GB/s over
NVLink, half of what is advertised for both directions together.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """A device and its links.

    Attributes:
        name: Of the device.
        memory: GB/s.
        ring: GB/s of one ring that uses a torus axis both ways.
        axes: Of the torus.
        slice_size: Devices joined by these links; beyond them the network is used.
        network: GB/s of each device.
        hop: Seconds.
    """

    name: str
    memory: float
    ring: float
    axes: int
    slice_size: int
    network: float
    hop: float = 1e-6


H200 = Chip("H200", 3750.0, 450.0, 1, 8, 50.0, hop=5e-6)
CHIPS = (
    Chip("v5e", 819.0, 100.0, 2, 256, 3.1),
    Chip("v5p", 2765.0, 200.0, 3, 6144, 6.25),
    H200,
)
BETWEEN_SLICES = 2e-4


def all_reduce_seconds(num_bytes: float, num_devices: int, chip: Chip) -> float:
    """One all-reduce: along the torus axes, then between slices."""
    inside = min(num_devices, chip.slice_size)
    num_slices = math.ceil(num_devices / chip.slice_size)
    side = inside ** (1 / chip.axes)
    seconds = 2 * (inside - 1) / inside * num_bytes / (chip.ring * 1e9)
    seconds += 2 * chip.axes * (side - 1) * chip.hop
    if num_slices > 1:
        # Each device exchanges its own part with its like in the other slices.
        part = 2 * (num_slices - 1) / num_slices * num_bytes / inside
        seconds += part / (chip.network * 1e9) + BETWEEN_SLICES
    return seconds


def gradient_seconds(
    gradient: float,
    num_params: int,
    num_chains: int,
    num_devices: int,
    chip: Chip,
) -> tuple[float, float]:
    """One full-batch gradient of every chain: computing, and adding up over devices.

    As `mesh.make_mesh` shares them out: chains first, and each chain's examples over
    the devices of its group, which add up 4 bytes a parameter of all chains they hold.

    Args:
        gradient: Seconds of one chain's gradient on one device.
        num_params: Of a chain.
        num_chains: Of the run.
        num_devices: All of one kind.
        chip: The kind.
    """
    groups = math.gcd(num_chains, num_devices)
    num_bytes = 4 * num_params * num_chains / groups
    adding = all_reduce_seconds(num_bytes, num_devices // groups, chip)
    return gradient * num_chains / num_devices, adding


def binding_number(
    gradient: float, num_params: int, num_chains: int, chip: Chip
) -> int:
    """Devices, in powers of two, from which on adding up takes the longer part."""
    number = 2
    while True:
        parts = gradient_seconds(gradient, num_params, num_chains, number, chip)
        if parts[1] > parts[0]:
            return number
        number *= 2
