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
        (
            {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            (1,),
        ),
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


def test_open_mpi_4(environ):
    uri = "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"
    environ(OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="3")
    environ(OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_MCA_orte_hnp_uri=uri)
    port = 1531576320 // 2**12 % 2**12 + 61440
    assert hosts.find("auto") == (f"10.96.0.1:{port}", 4, 3, (1,))
    environ(OMPI_COMM_WORLD_LOCAL_SIZE="1")
    assert hosts.find("auto") == (f"10.96.0.1:{port}", 4, 3, None)
    environ(OMPI_COMM_WORLD_SIZE="1")
    assert hosts.find("auto") is None


def mpi_5(rank, machine, job="prterun-a-b.c-6938@1", of_machine=2):
    """As version 5.0.11 says it, of four processes on two machines or one."""
    return {
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(of_machine),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 2),
        "PMIX_NAMESPACE": job,
        "PMIX_HOSTNAME": machine,
    }


def test_open_mpi_5():
    """Process 0 is where mpirun was typed; all find it at the same port."""
    places = [hosts.find("auto", mpi_5(i, ("a-b.c", "d")[i // 2])) for i in range(4)]
    host, port = places[0].address.split(":")
    assert host == "a-b.c"
    assert 61440 <= int(port) < 2**16
    same = f"a-b.c:{port}"
    assert places == [(same, 4, i, (i % 2,)) for i in range(4)]
    other = hosts.find("auto", mpi_5(0, "a-b.c", "prterun-a-b.c-6939@1"))
    assert other.address != places[0].address, "another job at the same time"
    # Inside an allocation of Slurm, which tells of the daemons of Open MPI.
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "d", "SLURM_NTASKS": "2"}
    slurm |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    assert hosts.find("auto", mpi_5(3, "d") | slurm) == places[3]
    by_hand = {"JAX_COORDINATOR_PORT": "8476", "CUDA_VISIBLE_DEVICES": "1"}
    there = hosts.find("auto", mpi_5(3, "d") | by_hand)
    assert there == ("a-b.c:8476", 4, 3, None)


def test_open_mpi_5_whose_process_0_is_elsewhere():
    """Then nobody can tell the others where, unless all are on one machine."""
    with pytest.raises(ValueError, match=r"on d. Type mpirun .*--distributed HOST:P"):
        hosts.find("auto", mpi_5(0, "d"))
    with pytest.raises(ValueError, match="its job is 'something', on d. Type mpirun"):
        hosts.find("auto", mpi_5(3, "d", "something"))
    assert hosts.find("off", mpi_5(0, "d")) is None
    for rank in (0, 3):
        place = hosts.find("auto", mpi_5(rank, "d", of_machine=4))
        assert place.address.startswith("localhost:")


def test_mpich_and_intel_mpi():
    """As Hydra 4.0.2 says it, which started two of four processes on this machine."""
    said = {"PMI_SIZE": "4", "PMI_RANK": "3", "PMI_FD": "8"}
    said |= {"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
    with pytest.raises(ValueError, match=r"as 3 of 4, .* -genv JAX_COORDINATOR_ADDRE"):
        hosts.find("auto", said)
    said["JAX_COORDINATOR_ADDRESS"] = "a:8476"
    assert hosts.find("auto", said) == ("a:8476", 4, 3, (1,))
    # Inside an allocation of Slurm, which tells of Hydra's daemons.
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "d", "SLURM_NTASKS": "2"}
    slurm |= {"SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert hosts.find("auto", said | slurm) == ("a:8476", 4, 3, (1,))
    assert hosts.find("auto", said | {"MPI_LOCALNRANKS": "1"}) == ("a:8476", 4, 3, None)
    assert hosts.find("auto", said | {"PMI_SIZE": "1", "PMI_RANK": "0"}) is None
    assert hosts.find("off", said) is None


def test_slurm_that_speaks_of_pmi(environ):
    environ(SLURM_JOB_ID="4097", SLURM_STEP_NODELIST="node[07-08]", SLURM_NTASKS="2")
    environ(SLURM_PROCID="1", SLURM_LOCALID="0", PMI_SIZE="2", PMI_RANK="1")
    assert hosts.find("auto") == ("node07:61441", 2, 1, (0,))


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
