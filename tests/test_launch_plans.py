"""Plans: built without doing anything, and quoted so that any words survive."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tpu import estimates, gke, launch, plans, skypilot, slurm, tpu7x, tpu_vm, yaml_text
from tpu.plans import Command, File, Remark


yaml = pytest.importorskip("yaml")  # comes with flax

HOSTILE = (
    "a b",
    "it's",
    'say "x"',
    "$HOME",
    "$(id)",
    "`id`",
    "\\",
    "a\\nb",
    "line\nbreak",
    "",
    "*",
    "~",
    "!x",
    "#x",
    "a;b&c|d>e",
    "--",
    "-",
    "END_OF_FILE",
    "ünïcode",
    "$$(HOME)",
    "a$",
    "%j",
    "{}",
)
COMMAND = ("symjax", "sample", "--out", "/mnt/symjax/r", *HOSTILE)
PRINT = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('V')]))"

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def bash(text, **options):
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, timeout=60, **options
    )
    return done.stdout


def test_a_printed_command_is_the_command():
    command = Command((sys.executable, "-ISc", PRINT, *HOSTILE), {"V": " $x'\n"})
    printed = plans.render([Remark("one\ntwo"), command])
    assert json.loads(bash(printed)) == [list(HOSTILE), " $x'\n"]


@settings(max_examples=100)
@given(st.lists(words, min_size=1))
def test_a_shell_reads_back_every_command(argv):
    assert shlex.split(str(Command(tuple(argv)))) == argv


def test_a_printed_file_is_the_file(tmp_path):
    text = "".join(f"{word}\n" for word in HOSTILE)
    file = File(str(tmp_path / "a b$HOME"), text)
    bash(str(file))
    assert Path(file.path).read_text() == text


@settings(max_examples=100)
@given(
    st.recursive(
        st.one_of(words, st.integers(), st.booleans(), st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.one_of(words, st.just("on")), inner, max_size=3),
        ),
        max_leaves=12,
    )
)
def test_yaml_is_read_back(value):
    assert yaml.safe_load(yaml_text.dump(value)) == value


def test_nothing_is_done_to_make_a_plan(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise AssertionError("a plan was to be made, and something was done")

    for name in ("run", "Popen", "call", "check_output"):
        monkeypatch.setattr(subprocess, name, refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    monkeypatch.chdir(tmp_path)
    made = [plan() for plan in PLANS.values()]
    assert made == [plan() for plan in PLANS.values()], "and the same one twice"
    for steps in made:
        assert plans.render(steps)
    assert not list(tmp_path.iterdir())


SLICE = tpu_vm.Slice("q", "z", "v4-16")
JOBSET = gke.JobSet("chains", "an/image:1", "tpu-v5p-slice", "2x2x4", "files", 2)
BATCH = slurm.Batch("chains", num_nodes=2, gpus_per_node=4, tasks_per_node=4)
TASK = skypilot.Task("chains", "tpu-v5p-32", "gs://b")
PLANS = {
    "tpu-vm": lambda: tpu_vm.steps(SLICE, COMMAND),
    "tpu-vm, many": lambda: tpu_vm.steps(
        tpu_vm.Slice("q", "z", "v6e-8", "p", 2, True, None, True, "1.2.3.4:/s"),
        COMMAND,
    ),
    "gke": lambda: gke.steps(JOBSET, COMMAND),
    "slurm": lambda: slurm.steps(BATCH, COMMAND, "/a checkout"),
    "skypilot": lambda: skypilot.steps(TASK, COMMAND),
    "tpu7x": lambda: tpu7x.steps(tpu7x.Pool("p", "c", "us-east5-a", "2x2x4", True)),
}


README = (Path(launch.__file__).parent / "README.md").read_text()


def readme_commands(program):
    """What the README tells to type, word by word."""
    blocks = "\n".join(re.findall(r"(?s)```bash\n(.*?)```", README))
    for line in blocks.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[: len(program)] == program and "..." not in words:
            yield words


def gcloud_commands():
    for plan in PLANS.values():
        for step in plan():
            if isinstance(step, Command) and step.argv[0] == "gcloud":
                yield step.argv
    yield from readme_commands(["gcloud"])


def test_what_the_readme_says_works(capsys):
    typed = list(readme_commands(["python", "tpu/launch.py"]))
    assert len(typed) == 2
    for words in typed:
        assert launch.main([*words[2:3], "--dry-run", *words[3:]]) == 0
        printed = capsys.readouterr().out
        assert shlex.join(words[words.index("--") + 1 :]) in printed
    assert estimates.table() in README


def test_the_name_of_the_program_may_be_left_out(capsys):
    rest = ["sample", "--data", "symjax", "--out", "/mnt/symjax/r"]
    skypilot = ["skypilot", "--accelerators", "H100:8", "--bucket", "gs://b"]
    for words in (["slurm", "--nodes", "2"], skypilot):
        printed = []
        for command in (rest, ["symjax", *rest]):
            assert launch.main([*words, "--dry-run", "--", *command]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1]
        assert "symjax sample --data symjax --out" in printed[0]


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud_knows_every_command_and_option(tmp_path):
    """gcloud checks its own command lines, without a network."""
    # The linter splits words without minding quotes, so scripts for ssh are left out.
    commands = [
        " ".join(re.sub(r"(?s)^--command=.*", "--command=x", word) for word in each)
        for each in gcloud_commands()
    ]
    wrong = "gcloud compute tpus queued-resources create q --no-such-option=1"
    file = tmp_path / "commands.json"
    file.write_text(
        json.dumps([{"command_string": text} for text in [*commands, wrong]])
    )
    done = subprocess.run(
        ["gcloud", "meta", "lint-gcloud-commands", f"--commands-file={file}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    results = {each["command_string"]: each for each in json.loads(done.stdout)}
    assert not results[wrong]["success"]
    faults = [
        (text, each["error_message"])
        for text, each in results.items()
        if text != wrong and not each["success"]
    ]
    assert not faults
    assert len(results) == len(set(commands)) + 1 > 10


# Schemas, as small as what is used. A tuple is a choice of values, a list of one the
# items, a dictionary the fields ("?" marks those that may be missing).


def check(value, schema, place=""):
    """Compare a document with a schema."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), place
        names = {name.removesuffix("?") for name in schema}
        assert set(value) <= names, f"{place}: unknown {set(value) - names}"
        for name, inner in schema.items():
            if name.removesuffix("?") in value:
                key = name.removesuffix("?")
                check(value[key], inner, f"{place}.{key}")
            else:
                assert name.endswith("?"), f"{place}.{name} is missing"
    elif isinstance(schema, list):
        assert isinstance(value, list), place
        for number, item in enumerate(value):
            check(item, schema[0], f"{place}[{number}]")
    elif isinstance(schema, tuple):
        assert value in schema, f"{place}: {value}"
    elif isinstance(schema, re.Pattern):
        assert isinstance(value, str), place
        assert schema.fullmatch(value), f"{place}: {value}"
    elif schema is not any:
        assert type(value) is schema, f"{place}: {value!r}"


LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

# kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go; Kubernetes' batch/v1 and
# core/v1 for what is inside a Job.
JOBSET_SCHEMA = {
    "apiVersion": ("jobset.x-k8s.io/v1alpha2",),
    "kind": ("JobSet",),
    "metadata": {"name": LABEL, "namespace": LABEL, "annotations": any},
    "spec": {
        "failurePolicy": {
            "maxRestarts": int,
            "restartStrategy": ("Recreate", "BlockingRecreate", "InPlaceRestart"),
            "rules": [
                {
                    "name": re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"),
                    "action": (
                        "FailJobSet",
                        "RestartJobSet",
                        "RestartJobSetAndIgnoreMaxRestarts",
                    ),
                    # Job failure reasons: jobset_webhook.go.
                    "onJobFailureReasons": [
                        (
                            "BackoffLimitExceeded",
                            "DeadlineExceeded",
                            "FailedIndexes",
                            "MaxFailedIndexesExceeded",
                            "PodFailurePolicy",
                        )
                    ],
                }
            ],
        },
        "replicatedJobs": [
            {
                "name": LABEL,
                "replicas": int,
                "template": {
                    "spec": {
                        "backoffLimit": int,
                        "completions": int,
                        "parallelism": int,
                        "completionMode": ("Indexed", "NonIndexed"),
                        "podFailurePolicy": {
                            "rules": [
                                {
                                    "action": ("FailJob", "Ignore", "Count"),
                                    "onExitCodes": {
                                        "containerName?": str,
                                        "operator": ("In", "NotIn"),
                                        "values": [int],
                                    },
                                }
                            ]
                        },
                        "template": {
                            "spec": {
                                # Required where there is a pod failure policy.
                                "restartPolicy": ("Never",),
                                "terminationGracePeriodSeconds": int,
                                "nodeSelector": any,
                                "volumes": [
                                    {
                                        "name": LABEL,
                                        "persistentVolumeClaim": {"claimName": LABEL},
                                    }
                                ],
                                "containers": [
                                    {
                                        "name": LABEL,
                                        "image": str,
                                        "command": [str],
                                        "env": [{"name": str, "value": str}],
                                        "volumeMounts": [
                                            {"name": ("shared",), "mountPath": str}
                                        ],
                                        "ports": [{"containerPort": int}],
                                        "resources": {
                                            "limits": {"google.com/tpu": int}
                                        },
                                    }
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}

# skypilot-org/skypilot, sky/utils/schemas.py: get_task_schema, get_resources_schema.
SKYPILOT_SCHEMA = {
    "name?": str,
    "workdir?": str,
    "num_nodes?": int,
    "resources?": {
        "infra?": re.compile(r"[a-z0-9]+(/[^/]+(/[^/]+)?)?"),
        "accelerators?": str,
        "use_spot?": bool,
        "job_recovery?": {
            "strategy?": str,
            "max_restarts_on_errors?": int,
            "recover_on_exit_codes?": [int],
        },
    },
    "envs?": any,
    "file_mounts?": any,
    "setup?": str,
    "run?": str,
}


def written(steps):
    """The one file of a plan, as it is read by whom it is for."""
    (file,) = (step for step in steps if isinstance(step, File))
    return yaml.safe_load(file.text)


def kubernetes(word):
    """What Kubernetes makes of a word of a command (its third_party expansion.go).

    $(NAME) is a variable, $$ is a dollar, and every other dollar is itself.
    """
    return re.sub(r"\$(\$|\(\w+\))", lambda m: "$" if m[1] == "$" else "EXPANDED", word)


def test_a_jobset_is_one_and_has_the_rules_of_the_exit_codes():
    jobset = written(PLANS["gke"]())
    check(jobset, JOBSET_SCHEMA)
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert replicated["replicas"] == 2
    assert job["completions"] == job["parallelism"] == 4, "16 chips, 4 a host"
    (container,) = job["template"]["spec"]["containers"]
    assert [kubernetes(word) for word in container["command"]] == [
        *("python", "tpu/worker.py", "exec", "--"),
        *COMMAND,
    ]
    assert {"name": "JAX_COORDINATOR_PORT", "value": "8476"} in container["env"]
    # What would happen to each exit code.
    (rule,) = job["podFailurePolicy"]["rules"]
    (policy,) = jobset["spec"]["failurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [1, 2], "permanent"
    assert (rule["action"], policy["action"]) == ("FailJob", "FailJobSet")
    assert policy["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert job["backoffLimit"] == 0
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"topology": "2x2x"},
        {"topology": "2x3x1"},
        {"topology": "0x4"},
        {"accelerator": "v4"},
        {"name": "My chains"},
        {"namespace": "my chains"},
        {"name": "a" * 41},
    ],
)
def test_a_jobset_that_no_cluster_has_is_refused(wrong):
    options = {"name": "a", "accelerator": "tpu-v5p-slice", "topology": "2x2x2"} | wrong
    with pytest.raises(ValueError, match="was expected to be"):
        gke.JobSet(image="i", claim="c", **options)


def test_a_bucket_that_is_none_is_refused():
    with pytest.raises(ValueError, match="`--bucket` was expected to be an address"):
        skypilot.Task("a", "H100:8", "chains")


def test_a_job_that_could_not_resume_is_refused(capsys):
    """Slurm requeues it."""
    command = ["--", "symjax", "sample", "--data", "digits"]
    assert launch.main(["slurm", "--nodes", "2", "--dry-run", *command]) == 2
    assert "was expected to say `--out RUN`" in capsys.readouterr().err


@pytest.mark.parametrize("accelerators", ["tpu-v5p-32", "H100:8"])
def test_a_skypilot_task_is_one_and_runs_the_command(accelerators, tmp_path):
    wanted = skypilot.Task("chains", accelerators, "gs://b", num_nodes=2)
    task = written(skypilot.steps(wanted, COMMAND))
    check(task, SKYPILOT_SCHEMA)
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [42]
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    names = ["JAX_COORDINATOR_ADDRESS", "SYMJAX_NUM_PROCESSES", "SYMJAX_PROCESS_ID"]
    text = f"print(json.dumps([sys.argv[1:], *map(os.environ.get, {names})]))"
    python.write_text(f"#!{sys.executable} -IS\nimport json, os, sys\n{text}")
    python.chmod(0o755)
    sky = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2"}
    run = bash(
        task["run"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "SKYPILOT_NODE_RANK": "1", **sky},
    )
    argv, *place = json.loads(run)
    assert argv == ["tpu/worker.py", "exec", "--", *COMMAND]
    expected = ["10.0.0.1:8476", "2", "1"] if "H100" in accelerators else [None] * 3
    assert place == expected
    subprocess.run(["bash", "-nc", task["setup"]], check=True)


def test_the_shared_files_are_mounted_before_anything_is_installed():
    script = tpu_vm.install_script("1.2.3.4:/a b")
    subprocess.run(["bash", "-nc", script], check=True)
    assert "mount -t nfs '1.2.3.4:/a b' /mnt/symjax\n" in script
    assert script.index("mount -t nfs") < script.index("tar ")
    assert "mount" not in tpu_vm.install_script(None)


def test_launch_needs_nothing_but_python(tmp_path):
    """It is for machines where symjax's dependencies are not installed."""
    words = [sys.executable, "-IS", launch.__file__, "gke", "--dry-run", "--name", "a"]
    words += ["--image", "i", "--accelerator", "tpu7x", "--topology", "2x2x1"]
    words += ["--claim", "files", "--"]
    done = subprocess.run(
        [*words, "symjax", "sample", "--out", "/mnt/symjax/r"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "kubectl apply" in done.stdout
    assert not list(tmp_path.iterdir())
