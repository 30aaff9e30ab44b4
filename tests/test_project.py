"""The repository's shape and its set-up scripts."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import symjax


CHECKOUT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
MODULES = sorted([*CHECKOUT.glob("symjax/**/*.py"), *CHECKOUT.glob("tpu/*.py")])
FIRST_MINOR, MINOR_BEYOND = [
    int(minor) for minor in re.findall(r"3\.(\d+)", PROJECT["requires-python"])
]


def test_top_level_holds_what_it_should():
    if not (CHECKOUT / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True
    ).stdout.decode()
    names = {path.split("/")[0] for path in tracked.split("\0") if path}
    assert {name for name in names if not name.startswith(".")} == {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "scripts",
        "symjax",
        "tests",
        "tpu",
    }


def test_installed_distribution_is_this_checkout():
    assert PROJECT["name"] == "symjax-posteriors"
    assert metadata.version("symjax-posteriors") == PROJECT["version"]
    assert Path(symjax.__file__).parent == CHECKOUT / "symjax"


def _code_length(function: ast.FunctionDef) -> int:
    """Lines without the docstring and without the functions defined inside."""
    apart: list[ast.stmt] = [
        node for node in function.body if isinstance(node, ast.FunctionDef)
    ]
    if ast.get_docstring(function):
        apart.append(function.body[0])
    length, *less = [
        (node.end_lineno or 0) - node.lineno + 1 for node in (function, *apart)
    ]
    return length - sum(less)


def test_modules_are_documented_and_short():
    faults = []
    for path in MODULES:
        source = path.read_text()
        tree = ast.parse(source)
        name = path.relative_to(CHECKOUT)
        if not ast.get_docstring(tree):
            faults.append(f"{name}: no docstring")
        if (length := len(source.splitlines())) > 400:
            faults.append(f"{name}: {length} lines, 400 at most")
        faults += [
            f"{name}: {node.name} has {_code_length(node)} lines of code, 60 at most"
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and _code_length(node) > 60
        ]
    assert not faults


def test_readme_warns_of_the_other_package_and_links_to_what_is_there():
    readme = (CHECKOUT / "README.md").read_text()
    assert "pip install symjax" in readme, "warn against that command: it is unrelated"
    assert "symjax-posteriors" in readme
    assert "scripts/quickstart" in readme
    assert "scripts/test" in readme
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", readme)
    assert not [link for link in links if not (CHECKOUT / link).exists()]


# The scripts run here in a copy of the checkout, with pretended Pythons.

SYSTEM_TOOLS = "bash sh env basename dirname cat cp mkdir mktemp mv rm"
INSTALLED_TOOLS = "symjax ruff basedpyright lint-imports pytest"

PYTHON_STUB = """#!/bin/sh
# Version, modules, venv and pip are pretended; code is run by the real Python.
case "$1 $2" in
"-c "*)
  exec "{real}" -ISc 'import sys
sys.version_info = (3, {minor}, 0)
if not {has_venv}: sys.modules["ensurepip"] = None
exec(sys.argv[1])' "$2" ;;
"-m venv")
  echo "venv 3.{minor}" >>"$LOG"
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$TOOLS"/* "$3/bin" ;;
"-m pip")
  if [ "$3" = --version ]; then [ -z "${{LOST_PIP:-}}" ]; exit; fi
  echo "pip $*" >>"$LOG"
  env >"$LOG.env"
  [ -z "${{BROKEN_PIP:-}}" ] ;;
esac
"""

TOOL_STUB = """#!/bin/sh
echo "ran ${0##*/} $*"
[ "${0##*/}" != "${FAULTY:-}" ]
"""


def _executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _stub_python(path: Path, minor: int = 12, *, has_venv: bool = True) -> Path:
    text = PYTHON_STUB.format(real=sys.executable, minor=minor, has_venv=has_venv)
    return _executable(path, text)


class Machine:
    """A machine with a copy of the checkout, a PATH without Python, and stubs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / "path"
        self.checkout = folder / "check out"
        self.venv = self.checkout / ".venv"
        shutil.copytree(CHECKOUT / "scripts", self.checkout / "scripts")
        shutil.copy(CHECKOUT / "pyproject.toml", self.checkout)
        self.path.mkdir()
        for tool in SYSTEM_TOOLS.split():
            (self.path / tool).symlink_to(shutil.which(tool) or tool)
        for tool in INSTALLED_TOOLS.split():
            _executable(folder / "tools" / tool, TOOL_STUB)
        self.log = folder / "log"

    def run(self, script: str, *arguments: str, **variables: str):
        """Exit code, output, complaints and what the stubs were asked to do."""
        self.log.write_text("")
        done = subprocess.run(
            [str(self.checkout / "scripts" / script), *arguments],
            cwd=self.folder,
            env={
                "PATH": str(self.path),
                "HOME": str(self.folder / "home"),
                "LOG": str(self.log),
                "TOOLS": str(self.folder / "tools"),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        asked = [line.split()[0] for line in self.log.read_text().splitlines()]
        return done.returncode, done.stdout, done.stderr, asked


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_missing_interpreter_is_named_with_the_way_to_get_one(machine):
    code, _, complaint, _ = machine.run("quickstart")
    assert code == 1
    assert "no Python was found" in complaint
    assert "apt install python3 python3-venv" in complaint

    code, _, complaint, _ = machine.run("test", PYTHON="/nonexistent")
    assert code == 1
    assert "/nonexistent, which is no working Python" in complaint
    assert not machine.venv.exists()


def test_missing_venv_module_is_named_with_the_way_to_get_it(machine):
    _stub_python(machine.path / "python3", 12, has_venv=False)
    code, _, complaint, asked = machine.run("quickstart")
    assert (code, asked) == (1, [])
    assert "(Python 3.12) lacks the venv and ensurepip modules" in complaint
    assert "apt install python3.12-venv" in complaint


@pytest.mark.parametrize("minor", [9, FIRST_MINOR - 1, MINOR_BEYOND])
def test_interpreter_outside_the_bounds_is_refused(machine, minor):
    python = _stub_python(machine.path / "python3", minor)
    for variables in ({}, {"PYTHON": str(python)}):
        code, _, complaint, asked = machine.run("quickstart", **variables)
        assert (code, asked) == (1, [])
        assert f"{python} is Python 3.{minor}" in complaint


@pytest.mark.parametrize("minor", [FIRST_MINOR, MINOR_BEYOND - 1])
def test_interpreter_at_the_bounds_is_found_behind_unfit_ones(machine, minor):
    _stub_python(machine.path / "python3", FIRST_MINOR - 1)
    _stub_python(machine.path / "python3.12", 12, has_venv=False)
    fit = "python3.11" if minor == FIRST_MINOR else "python3.13"
    _stub_python(machine.path / fit, minor)
    code, output, _, _ = machine.run("quickstart")
    assert code == 0
    assert f"making .venv with Python 3.{minor}" in output


def test_second_run_installs_nothing_until_something_changed(machine):
    python = _stub_python(machine.path / "python3")
    assert machine.run("quickstart")[3] == ["venv", "pip", "pip"]
    assert machine.run("quickstart")[3] == []

    assert machine.run("test")[3] == ["pip", "pip"], "the development group is added"
    assert machine.run("quickstart")[3] == machine.run("test")[3] == []

    with (machine.checkout / "pyproject.toml").open("a") as project:
        project.write("# another dependency\n")
    assert machine.run("quickstart")[3] == ["pip", "pip"]
    assert machine.run("test")[3] == ["pip", "pip"]

    other = _stub_python(machine.folder / "python", 13)
    assert machine.run("test", PYTHON=str(other))[3] == ["venv", "pip", "pip"]
    assert machine.run("test", PYTHON=str(other))[3] == []

    (machine.venv / "bin" / "python").unlink()
    assert machine.run("test")[3] == ["venv", "pip", "pip"], f"{other} was removed"

    _stub_python(machine.venv / "bin" / "python", 13)
    asked = machine.run("test", LOST_PIP="yes")[3]
    assert asked == ["venv", "pip", "pip"], f"{python} is a new version's now"

    machine.checkout = machine.checkout.rename(machine.folder / "moved")
    machine.venv = machine.checkout / ".venv"
    assert machine.run("test")[3] == ["venv", "pip", "pip"], f"{python} at a new place"


def test_interrupted_installation_is_begun_again(machine):
    _stub_python(machine.path / "python3")
    code, _, complaint, _ = machine.run("test", BROKEN_PIP="yes")
    assert code == 1
    assert "the installation failed" in complaint
    assert machine.run("test")[3] == ["venv", "pip", "pip"]

    project = machine.checkout / "pyproject.toml"
    text = project.read_text()
    project.write_text(text + "# another dependency\n")
    assert machine.run("test", BROKEN_PIP="yes")[0] == 1
    project.write_text(text)
    assert machine.run("test")[3] == ["venv", "pip", "pip"]


def test_environment_of_another_tool_is_left_alone(machine):
    _stub_python(machine.path / "python3")
    theirs = _executable(machine.venv / "bin" / "python", "#!/bin/sh\n")
    code, _, complaint, asked = machine.run("quickstart")
    assert (code, asked) == (1, [])
    assert f"{machine.venv} was not made by this script" in complaint
    assert theirs.exists()


def test_nothing_outside_the_checkout_is_used(machine):
    _stub_python(machine.path / "python3")
    before = set(machine.folder.iterdir())
    code, output, _, _ = machine.run("quickstart", PIP_TARGET="/x", PYTHONPATH="/x")
    assert code == 0
    assert set(machine.folder.iterdir()) - before == {
        machine.log,
        machine.log.with_suffix(".env"),
    }
    settings = dict(
        line.split("=", 1)
        for line in machine.log.with_suffix(".env").read_text().splitlines()
    )
    assert settings.keys().isdisjoint({"PIP_TARGET", "PYTHONPATH"})
    for name in ("PIP_CACHE_DIR", "XDG_CACHE_HOME", "MPLCONFIGDIR", "TMPDIR"):
        assert Path(settings[name]).is_relative_to(machine.checkout)
    assert f"ran symjax demo --out {machine.checkout}/demo" in output

    output = machine.run("quickstart", "--out", "elsewhere")[1]
    assert output.endswith("ran symjax demo --out elsewhere\n")


def test_checks_stop_at_the_first_fault_and_name_it(machine):
    _stub_python(machine.path / "python3")
    code, output, _, _ = machine.run("test", "-k", "hmc")
    assert code == 0
    assert re.findall(r"^ran (.*)", output, re.MULTILINE) == [
        "ruff check",
        "ruff format --check",
        "basedpyright ",
        "lint-imports ",
        "pytest --numprocesses auto --maxprocesses 8 --dist loadscope "
        "--no-loadscope-reorder -k hmc",
    ]
    assert output.endswith("-k hmc\n"), "pytest has the last word"

    code, output, complaint, _ = machine.run("test", FAULTY="basedpyright")
    assert code == 1
    assert "test: basedpyright found something" in complaint
    assert "ran lint-imports" not in output

    assert machine.run("test", FAULTY="pytest")[0] == 1


@pytest.mark.parametrize("script", ["quickstart", "test"])
def test_help_explains_without_doing(machine, script):
    code, output, _, asked = machine.run(script, "--help")
    assert (code, asked) == (0, [])
    assert output.startswith(f"usage: scripts/{script} ")
    assert not machine.venv.exists()
