"""TPU7x (Ironwood) and later: the commands that make a place for them, to read.

Cloud TPU's own API ends with v6e. TPU7x is reached by GKE, where a workload policy
takes the place of `--tpu-topology` (GKE's page on Ironwood), or by a managed instance
group of Compute Engine with the same policy. Nothing here is carried out.
"""

from dataclasses import dataclass

from tpu.gke import ACCELERATORS
from tpu.plans import Command, Remark, Step


@dataclass(frozen=True)
class Pool:
    """A node pool that is one slice of TPU7x.

    Attributes:
        name: Of the pool and of its policy.
        cluster: Of GKE, version 1.34.0-gke.2201000 or later.
        location: Region or zone of the cluster.
        topology: Such as 2x2x4.
        spot: Whether it may be preempted.
    """

    name: str
    cluster: str
    location: str
    topology: str
    spot: bool = False


def steps(wanted: Pool) -> tuple[Step, ...]:
    """The commands to copy."""
    region = "-".join(wanted.location.split("-")[:2])
    policy = f"{wanted.name}-policy"
    return (
        Remark(
            "Cloud TPU's API has no TPU7x. These make a slice as a node pool of GKE;\n"
            "check them against GKE's page on Ironwood first: they were never run."
        ),
        Command(
            ("gcloud", "compute", "resource-policies", "create", "workload-policy")
            + (policy, f"--region={region}", "--type=HIGH_THROUGHPUT")
            + (f"--accelerator-topology={wanted.topology}",)
        ),
        Command(
            ("gcloud", "container", "node-pools", "create", wanted.name)
            + (f"--cluster={wanted.cluster}", f"--location={wanted.location}")
            + (
                f"--machine-type={ACCELERATORS['tpu7x']}",
                f"--placement-policy={policy}",
            )
            + (("--spot",) if wanted.spot else ())
        ),
        Remark(
            "\nThen, with kubectl at that cluster:\n"
            "python tpu/launch.py gke --accelerator tpu7x "
            f"--topology {wanted.topology} --name ... --image ... -- symjax sample ..."
        ),
    )
