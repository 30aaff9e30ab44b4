"""Which process of how many this is, as clusters say it and JAX reads it."""

import socket
import sys
from types import SimpleNamespace

import pytest
from jax._src.clusters import cloud_tpu_cluster, cluster, k8s_cluster

from symjax import hosts


@pytest.fixture
def environ(monkeypatch):
    """Set variables of the environment; JAX reads the process' own one."""
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.0.0.9")

    def put(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


def test_slurm(environ):
    """The port is made of the job's number."""
    environ(SLURM_JOB_ID="4097", SLURM_STEP_NODELIST="node[07-08]", SLURM_NTASKS="2")
    environ(SLURM_PROCID="1", SLURM_LOCALID="0")
    assert hosts.find("auto") == ("node07:61441", 2, 1, (0,))
    environ(SLURM_NTASKS="1")
    assert hosts.find("auto") is None


@pytest.mark.parametrize(
    ("variables", "devices"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, (1,)),
        ({"SLURM_STEP_TASKS_PER_NODE": "1,2(x2)"}, (1,)),
        ({"SLURM_STEP_TASKS_PER_NODE": "12(x2)"}, (1,)),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x4)"}, None),
        ({"SLURM_STEP_TASKS_PER_NODE": "1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, (1,)),
        # As --gpus-per-task makes it.
        ({"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"JAX_LOCAL_DEVICE_IDS": "2,3"}, None),
    ],
)
def test_gpus_that_are_its_own_already(environ, variables, devices):
    environ(SLURM_JOB_ID="4097", SLURM_STEP_NODELIST="node[07-08]", SLURM_NTASKS="4")
    environ(SLURM_PROCID="3", SLURM_LOCALID="1", **variables)
    assert hosts.find("auto") == ("node07:61441", 4, 3, devices)


def test_open_mpi(environ, monkeypatch):
    uri = "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"
    environ(OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="3")
    environ(OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_MCA_orte_hnp_uri=uri)
    port = 1531576320 // 2**12 % 2**12 + 61440
    assert hosts.find("auto") == (f"10.96.0.1:{port}", 4, 3, (1,))
    environ(OMPI_COMM_WORLD_LOCAL_SIZE="1")
    assert hosts.find("auto") == (f"10.96.0.1:{port}", 4, 3, None)
    monkeypatch.delenv("OMPI_MCA_orte_hnp_uri")
    with pytest.raises(ValueError, match=r"Open MPI .*Give `--distributed HOST:PORT"):
        hosts.find("auto")
    assert hosts.find("off") is None
    environ(OMPI_COMM_WORLD_SIZE="1")
    assert hosts.find("auto") is None


@pytest.fixture
def tpus(environ, monkeypatch):
    """JAX believes that it runs on a TPU VM; its metadata are to be filled."""
    metadata = {"tpu-env": ""}
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)  # JAX sets it elsewhere.
    for module in (cloud_tpu_cluster, cluster):
        monkeypatch.setattr(module, "running_in_cloud_tpu_vm", True)
    answer = lambda key: (metadata.get(key, ""), 200 if key in metadata else 404)
    monkeypatch.setattr(cloud_tpu_cluster, "get_metadata", answer)
    environ(JAX_COORDINATOR_PORT="8476")
    return metadata


def test_a_slice_in_kubernetes(environ, tpus):
    environ(TPU_WORKER_HOSTNAMES="a-0.a,a-1.a,a-2.a", TPU_WORKER_ID="2")
    assert hosts.find("auto") == ("a-0.a:8476", 3, 2, None)
    environ(TPU_WORKER_HOSTNAMES="a-0.a", TPU_WORKER_ID="0")
    assert hosts.find("auto") is None


@pytest.mark.parametrize(
    ("workers", "place"), [("b-0.b", (2, 1)), ("b-0.b,b-1.b", (4, 2))]
)
def test_several_slices_in_kubernetes(environ, tpus, workers, place):
    """Also where each of them is of one host."""
    environ(TPU_WORKER_HOSTNAMES=workers, TPU_WORKER_ID="0", MEGASCALE_SLICE_ID="1")
    environ(MEGASCALE_NUM_SLICES="2", MEGASCALE_COORDINATOR_ADDRESS="a-0.a:80")
    assert hosts.find("auto") == ("a-0.a:8476", *place, None)


def test_cloud_tpu_vms(tpus):
    tpus["agent-worker-number"] = "1"
    tpus["worker-network-endpoints"] = "x:0:10.0.0.1,y:1:10.0.0.2"
    assert hosts.find("auto") == ("10.0.0.1:8476", 2, 1, None)
    tpus["worker-network-endpoints"] = "x:0:10.0.0.1"
    tpus["agent-worker-number"] = "0"
    assert hosts.find("auto") is None


def test_a_job_of_kubernetes(environ, monkeypatch):
    """Of a JobSet; what its Python package asks the server is given."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "chains"}
    metadata = SimpleNamespace(name="chains-w-0", labels=labels)
    job = SimpleNamespace(metadata=metadata, spec=SimpleNamespace(parallelism=4))
    found = {"_controller": SimpleNamespace(kind="Job"), "_job": job, "_pod": None}
    for name, value in found.items():
        monkeypatch.setattr(k8s_cluster.K8sCluster, name, lambda value=value: value)
    names = ("CoreV1Api", "BatchV1Api")
    client = SimpleNamespace(**dict.fromkeys(names, object), exceptions=None)
    client.exceptions = SimpleNamespace(ApiException=OSError)
    package = SimpleNamespace(
        config=SimpleNamespace(load_incluster_config=lambda: None), client=client
    )
    monkeypatch.setitem(sys.modules, "kubernetes", package)
    environ(KUBERNETES_SERVICE_HOST="10.0.0.1", JOB_COMPLETION_INDEX="3")
    assert hosts.find("auto") == ("chains-w-0-0.chains:55527", 4, 3, None)
    # A job of one.
    job.spec.parallelism, job.metadata.name = 1, "alone"
    assert hosts.find("auto") is None
