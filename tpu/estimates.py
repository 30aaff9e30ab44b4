"""Time of published references on many devices, on paper: `python tpu/estimates.py`.

One leapfrog of all C chains on D devices is C full-batch gradients, shared out over the
devices, and one all-reduce of every chain's gradient, 4 P bytes each:

    seconds = C gradient / D + all_reduce(4 P C bytes, D)

Known: the gradient of ResNet-20-FRN on 50,000 images takes 0.415 s on one H200 (TF32),
which copies 3.75 TB/s, and 0.51 times that on two. Its 12 TFLOP are 8 % of what the
card multiplies in that time, so memory bounds it, and other chips are scaled by their
memory's bandwidth. *Not measured*: any TPU, the CNN-LSTM (its 0.9 TFLOP at the ResNet's
rate), more than two devices. Bandwidths are those of docs.cloud.google.com/tpu/docs/v5e
and /v5p; one microsecond a hop and 200 between slices are assumptions. A TPU that fills
its lanes badly with 16 channels is slower than this.
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


@dataclass(frozen=True)
class Reference:
    """A published posterior (Izmailov et al. 2021, table 3 and section 4).

    Attributes:
        name: Data and network.
        num_params: P.
        gradient: Seconds of one full-batch gradient on an H200.
        num_leapfrogs: Of a chain: iterations with their burn-in, times leapfrogs.
        num_chains: C.
    """

    name: str
    num_params: int
    gradient: float
    num_leapfrogs: int
    num_chains: int = 3


H200 = Chip("H200", 3750, 900, 1, 8, 50, hop=5e-6)
CHIPS = (
    Chip("v5e", 819, 100, 2, 256, 3.1),
    Chip("v5p", 2765, 200, 3, 6144, 6.25),
    H200,
)
REFERENCES = (
    Reference("CIFAR-10, ResNet-20-FRN", 274_042, 0.415, 290 * 70_248),
    Reference("IMDB, CNN-LSTM", 2_700_000, 0.03, 450 * 24_837),
)
BETWEEN_SLICES = 2e-4


def gradient_seconds(reference: Reference, chip: Chip) -> float:
    """One gradient of one chain on one device."""
    return reference.gradient * H200.memory / chip.memory


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


def leapfrog_seconds(
    reference: Reference, num_devices: int, chip: Chip
) -> tuple[float, float]:
    """One leapfrog of all chains: its gradients, and its all-reduce."""
    chains = reference.num_chains
    gradients = chains * gradient_seconds(reference, chip) / num_devices
    num_bytes = 4 * reference.num_params * chains
    return gradients, all_reduce_seconds(num_bytes, num_devices, chip)


def table() -> str:
    """Days of each reference on each device, and the share of the all-reduce."""
    lines = ["| | 8 | 64 | 512 |", "|---|---|---|---|"]
    for reference in REFERENCES:
        for chip in CHIPS:
            cells = []
            for num_devices in (8, 64, 512):
                parts = leapfrog_seconds(reference, num_devices, chip)
                days = sum(parts) * reference.num_leapfrogs / 86_400
                cells.append(f"{_round(days)} days, {parts[1] / sum(parts):.0%}")
            lines.append(
                f"| {reference.name}, {chip.name} | " + " | ".join(cells) + " |"
            )
    return "\n".join(lines)


def _round(days: float) -> str:
    return f"{days:.0f}" if days >= 10 else f"{days:.2g}"


def binding_number(reference: Reference, chip: Chip) -> int:
    """Devices, in powers of two, from which on the all-reduce takes the longer part."""
    number = 2
    while True:
        gradients, all_reduce = leapfrog_seconds(reference, number, chip)
        if all_reduce > gradients:
            return number
        number *= 2


if __name__ == "__main__":
    print(table())
    for each in REFERENCES:
        for of in CHIPS:
            print(f"{each.name}, {of.name}: {binding_number(each, of)} devices bind")
