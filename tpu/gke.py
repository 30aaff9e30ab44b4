"""A JobSet for the TPU node pools of a Google Kubernetes Engine cluster.

Sources: JobSet's API v1alpha2 (kubernetes-sigs/jobset, jobset_types.go) and its example
max-restarts.yaml; pod failure policies in the Kubernetes documentation of Jobs; labels
and machine types in GKE's "Deploy TPU Multislices" and in xpk's
system_characteristics.py, both of 2026.

What decides how a run ends:

- `backoffLimit: 0` and `restartPolicy: Never`: a pod that fails fails its Job, whose
  other pods Kubernetes ends; a single pod that came back would find its peers gone.
- Exit codes 1 and 2 fail the Job with the reason PodFailurePolicy, upon which the
  JobSet fails at once. Every other failure, 42 (preempted and saved) and a lost node
  among them, has the reason BackoffLimitExceeded: the JobSet makes all Jobs anew,
  `maxRestarts` times.
- GKE's webhook sets TPU_WORKER_ID and TPU_WORKER_HOSTNAMES (and MEGASCALE_... for
  several slices), from which JAX knows the hosts without the `kubernetes` package.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from tpu import yaml_text
from tpu.plans import SHARED, Command, File, Remark, Step
from tpu.tpu_vm import COORDINATOR_PORT


ACCELERATORS = {
    "tpu-v4-podslice": "ct4p-hightpu-4t",
    "tpu-v5-lite-podslice": "ct5lp-hightpu-4t",
    "tpu-v5p-slice": "ct5p-hightpu-4t",
    "tpu-v6e-slice": "ct6e-standard-4t",
    "tpu7x": "tpu7x-standard-4t",
}
"""The node label of each generation, and its machine type with 4 chips a host."""


@dataclass(frozen=True)
class JobSet:
    """What is asked of the cluster.

    Attributes:
        name: Of the JobSet; at most 40 characters, since Kubernetes adds to it.
        image: Made from tpu/Dockerfile.
        accelerator: The node label, one of `ACCELERATORS`.
        topology: Of a slice, such as 2x2x4; the node pool's.
        num_slices: Jobs, one a slice.
        chips_per_host: Of the machine type.
        max_restarts: Of the whole, after accidents and preemptions together.
        grace: Seconds from SIGTERM to SIGKILL, for the save.
        claim: A PersistentVolumeClaim that all pods can write (ReadWriteMany).
        namespace: Of Kubernetes.
        spot: Whether the pods go to spot nodes.
    """

    name: str
    image: str
    accelerator: str
    topology: str
    claim: str
    num_slices: int = 1
    chips_per_host: int = 4
    max_restarts: int = 20
    grace: int = 60
    namespace: str = "default"
    spot: bool = False

    @property
    def num_hosts(self) -> int:
        """Pods of one slice."""
        return math.prod(map(int, self.topology.split("x"))) // self.chips_per_host

    def __post_init__(self) -> None:
        """Check what the cluster would say late, or never.

        Raises:
            ValueError: if the name, the accelerator or the topology is not one.
        """
        if not re.fullmatch("[a-z]([-a-z0-9]{0,38}[a-z0-9])?", self.name):
            raise ValueError(
                "`--name` was expected to be at most 40 small letters, digits and -, a "
                f"letter first, got {self.name}"
            )
        if not re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", self.namespace):
            raise ValueError(
                "`--namespace` was expected to be small letters, digits and -, got "
                f"{self.namespace!r}"
            )
        if self.accelerator not in ACCELERATORS:
            raise ValueError(
                f"`--accelerator` was expected to be one of {', '.join(ACCELERATORS)}; "
                f"got {self.accelerator}"
            )
        sizes = self.topology.split("x")
        are_sizes = all(re.fullmatch("[1-9][0-9]*", size) for size in sizes)
        if not are_sizes or len(sizes) not in (2, 3):
            raise ValueError(
                "`--topology` was expected to be like 4x4 or 2x2x4, got "
                f"{self.topology}"
            )
        if self.num_hosts * self.chips_per_host != math.prod(map(int, sizes)):
            raise ValueError(
                f"`--topology` {self.topology} was expected to be whole hosts of "
                f"{self.chips_per_host} chips; give `--chips-per-host`"
            )


def steps(wanted: JobSet, command: tuple[str, ...]) -> tuple[Step, ...]:
    """Write the manifest and hand it to the cluster."""
    path = f"{wanted.name}.yaml"
    space = f"--namespace={wanted.namespace}"
    selector = f"--selector=jobset.sigs.k8s.io/jobset-name={wanted.name}"
    later = (
        Command(("kubectl", "get", "jobset", wanted.name, space)),
        Command(("kubectl", "logs", selector, space, "--prefix", "--follow")),
        Command(("kubectl", "delete", "jobset", wanted.name, space)),
    )
    return (
        File(path, yaml_text.dump(manifest(wanted, command))),
        Command(("kubectl", "apply", f"--filename={path}")),
        Remark("How it is, what it says, and its end:\n" + "\n".join(map(str, later))),
    )


def manifest(wanted: JobSet, command: tuple[str, ...]) -> dict[str, Any]:
    """The JobSet as Kubernetes takes it."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            # One Job has a node pool, which is a slice, to itself.
            "annotations": {
                "alpha.jobset.sigs.k8s.io/exclusive-topology": (
                    "cloud.google.com/gke-nodepool"
                )
            },
        },
        "spec": {
            "failurePolicy": {
                "maxRestarts": wanted.max_restarts,
                # All old pods are gone before the first new one starts: two attempts
                # never write one run.
                "restartStrategy": "BlockingRecreate",
                "rules": [
                    {
                        "name": "permanent",
                        "action": "FailJobSet",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [
                {
                    "name": "slice",
                    "replicas": wanted.num_slices,
                    "template": {"spec": _job(wanted, command)},
                }
            ],
        },
    }


def _job(wanted: JobSet, command: tuple[str, ...]) -> dict[str, Any]:
    """A pod for each host of a slice; what a restart does not mend fails it."""
    permanent = {"containerName": "symjax", "operator": "In", "values": [1, 2]}
    return {
        "backoffLimit": 0,
        "completions": wanted.num_hosts,
        "parallelism": wanted.num_hosts,
        "completionMode": "Indexed",
        "podFailurePolicy": {
            "rules": [{"action": "FailJob", "onExitCodes": permanent}]
        },
        "template": {"spec": _pod(wanted, command)},
    }


def _pod(wanted: JobSet, command: tuple[str, ...]) -> dict[str, Any]:
    worker = ("python", "tpu/worker.py", "exec", "--", *command)
    selector = {
        "cloud.google.com/gke-tpu-accelerator": wanted.accelerator,
        "cloud.google.com/gke-tpu-topology": wanted.topology,
    }
    if wanted.spot:
        selector["cloud.google.com/gke-spot"] = "true"
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": wanted.grace,
        "nodeSelector": selector,
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": wanted.claim}}
        ],
        "containers": [
            {
                "name": "symjax",
                "image": wanted.image,
                "command": [_literal(word) for word in worker],
                "env": [{"name": "JAX_COORDINATOR_PORT", "value": COORDINATOR_PORT}],
                "ports": [{"containerPort": int(COORDINATOR_PORT)}],
                "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
                "resources": {"limits": {"google.com/tpu": wanted.chips_per_host}},
            }
        ],
    }


def _literal(word: str) -> str:
    """The word as Kubernetes takes it: there $(NAME) is a variable and $$ a dollar."""
    return word.replace("$", "$$")
