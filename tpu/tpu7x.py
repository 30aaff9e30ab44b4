"""TPU7x (Ironwood) and later: the commands that make a place for them, to read.

Cloud TPU's own API ends with v6e. TPU7x is reached by GKE, where a workload policy
takes the place of `--tpu-topology` (GKE's page on Ironwood), or by a managed instance
group of Compute Engine with such a policy ("Create a MIG with multi-host TPU slice",
docs.cloud.google.com/compute/docs/tpus). Nothing here is carried out.
"""

import math
from dataclasses import dataclass

from tpu.gke import ACCELERATORS
from tpu.plans import Command, Remark, Step


CHIPS_PER_HOST = 4


@dataclass(frozen=True)
class Pool:
    """A slice of TPU7x.

    Attributes:
        name: Of the pool or group, and of its policy.
        cluster: Of GKE, version 1.34.0-gke.2201000 or later.
        location: Zone of the slice.
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
            "Cloud TPU's API has no TPU7x. These commands were never run: check them\n"
            "against Google's pages on Ironwood first. The policy of the slice:"
        ),
        Command(
            ("gcloud", "compute", "resource-policies", "create", "workload-policy")
            + (policy, f"--region={region}", "--type=HIGH_THROUGHPUT")
            + (f"--accelerator-topology={wanted.topology}",)
        ),
        Remark("\nEither a node pool of GKE,"),
        Command(
            ("gcloud", "container", "node-pools", "create", wanted.name)
            + (f"--cluster={wanted.cluster}", f"--location={wanted.location}")
            + (f"--machine-type={ACCELERATORS['tpu7x']}",)
            + (f"--placement-policy={policy}",)
            + (("--spot",) if wanted.spot else ())
        ),
        Remark(
            "and then, with kubectl at that cluster:\n"
            "python tpu/launch.py gke --accelerator tpu7x "
            f"--topology {wanted.topology} --name ... --image ... --claim ... "
            "-- symjax sample ..."
        ),
        *_group(wanted, policy),
    )


def _group(wanted: Pool, policy: str) -> tuple[Step, ...]:
    sizes = map(int, wanted.topology.split("x"))
    num_hosts = math.prod(sizes) // CHIPS_PER_HOST
    template = f"{wanted.name}-template"
    return (
        Remark("\nor a group of machines of Compute Engine,"),
        Command(
            ("gcloud", "compute", "instance-templates", "create", template)
            + (f"--machine-type={ACCELERATORS['tpu7x']}",)
            + ("--maintenance-policy=TERMINATE",)
            + ("--image-family=IMAGE_FAMILY", "--image-project=IMAGE_PROJECT")
            + (("--provisioning-model=SPOT",) if wanted.spot else ())
        ),
        Command(
            ("gcloud", "compute", "instance-groups", "managed", "create", wanted.name)
            + (f"--template={template}", f"--size={num_hosts}")
            + (f"--zone={wanted.location}", f"--workload-policy={policy}")
        ),
        Remark(
            "and on each of its machines, whose number JAX has to be told:\n"
            "JAX_COORDINATOR_ADDRESS=FIRST:8476 "
            f"SYMJAX_NUM_PROCESSES={num_hosts} SYMJAX_PROCESS_ID=NUMBER \\\n"
            "    python tpu/worker.py exec -- symjax sample ..."
        ),
    )
