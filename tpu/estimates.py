"""Time of published references on many devices, on paper: `python tpu/estimates.py`.

One leapfrog of all C chains on D devices is C full-batch gradients, shared out over the
devices, and one all-reduce of every chain's gradient, 4 P bytes each:

    seconds = C gradient / D + all_reduce(4 P C bytes, D)

Known: the gradient of ResNet-20-FRN on 50,000 images takes 0.415 s on one H200 (TF32),
which copies 3.75 TB/s, and 0.51 times that on two. Its 12 TFLOP are 8 % of what the
card multiplies in that time, so memory bounds it, and other chips are scaled by their
memory's bandwidth. *Not measured*: any TPU, the CNN-LSTM (its 0.9 TFLOP at the ResNet's
rate), more than two devices. The devices and their links, and how long they take to add
up, are in `symjax/launching/devices.py`. A TPU that fills its lanes badly with 16
channels is slower than this.
"""

import sys
from dataclasses import dataclass
from pathlib import Path


# It runs where no package is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from symjax.launching import devices
from symjax.launching.devices import CHIPS, H200, Chip


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


REFERENCES = (
    Reference("CIFAR-10, ResNet-20-FRN", 274_042, 0.415, 290 * 70_248),
    Reference("IMDB, CNN-LSTM", 2_700_000, 0.03, 450 * 24_837),
)


def gradient_seconds(reference: Reference, chip: Chip) -> float:
    """One gradient of one chain on one device."""
    return reference.gradient * H200.memory / chip.memory


def leapfrog_seconds(
    reference: Reference, num_devices: int, chip: Chip
) -> tuple[float, float]:
    """One leapfrog of all chains: its gradients, and its all-reduce."""
    return devices.gradient_seconds(
        gradient_seconds(reference, chip),
        reference.num_params,
        reference.num_chains,
        num_devices,
        chip,
    )


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
    gradient = gradient_seconds(reference, chip)
    return devices.binding_number(
        gradient, reference.num_params, reference.num_chains, chip
    )


if __name__ == "__main__":
    print(table())
    for each in REFERENCES:
        for of in CHIPS:
            print(f"{each.name}, {of.name}: {binding_number(each, of)} devices bind")
