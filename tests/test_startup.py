"""What a command waits for before it computes: imports and compiled programs."""

import gc
import io
import os
import subprocess
import sys

import jax
import pytest
from commands import symjax
from rich.console import Console

from symjax import hosts
from symjax.cli import compilations


@pytest.fixture
def keep(monkeypatch, tmp_path):
    """`keep` of a user who has set nothing but XDG_CACHE_HOME; returns what is said."""
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)

    def run():
        said = io.StringIO()
        compilations.keep(Console(file=said, width=40))
        return said.getvalue()

    yield run
    jax.config.update("jax_compilation_cache_dir", before)


def test_programs_are_kept_in_the_users_cache_and_one_line_says_so(keep, tmp_path):
    said = keep()
    folder = tmp_path / "symjax" / "jax"
    assert folder.is_dir()
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert str(folder) in said
    assert said.count("\n") == 1
    assert keep() == "", "said again"


def test_without_xdg_the_home_folder_has_the_cache(keep, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        jax.config.update("jax_compilation_cache_dir", None)
        keep()
        expected = tmp_path / "home" / ".cache" / "symjax" / "jax"
        assert jax.config.jax_compilation_cache_dir == str(expected)


@pytest.mark.parametrize("value", ["", "/elsewhere"])
def test_the_folder_of_jax_goes_first(keep, monkeypatch, tmp_path, value):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", value)
    assert keep() == ""
    assert jax.config.jax_compilation_cache_dir is None
    assert not (tmp_path / "symjax").exists()


def test_a_cache_that_is_switched_off_stays_off(keep, tmp_path):
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        assert keep() == ""
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert jax.config.jax_compilation_cache_dir is None
    assert not (tmp_path / "symjax").exists()


def test_of_several_processes_none_keeps_programs(keep, monkeypatch, tmp_path):
    monkeypatch.setattr(hosts, "count", lambda: 2)
    assert keep() == ""
    assert jax.config.jax_compilation_cache_dir is None
    assert not (tmp_path / "symjax").exists()


def test_a_folder_that_cannot_be_made_is_told_and_not_used(keep, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "not kept" in keep()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize("words", [("sample", "--help"), ("list", "--help")])
def test_help_that_nobody_reads_to_its_end_ends_in_silence(words, monkeypatch, capfd):
    """More than the pipe's buffer of Python holds, and less."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        symjax(*words, code=1)
    assert capfd.readouterr().err == ""


def test_the_package_can_be_run_as_a_module(tmp_path):
    words = [sys.executable, "-m", "symjax", "list", str(tmp_path / "none")]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.startswith("Error: `folder` must be a folder, got ")


def test_garbage_is_collected_again_when_a_command_runs(monkeypatch, tmp_path):
    seen = []
    note = lambda *_: seen.append(gc.isenabled())
    monkeypatch.setattr("symjax.cli.results.list_runs", note)
    symjax("list", tmp_path)
    assert seen == [True]


def test_a_run_begins_with_no_imports_of_what_only_draws_evaluates_or_saves():
    heavy = ("matplotlib", "sklearn", "pandas", "xarray", "orbax")
    heavy += ("scipy.ndimage", "scipy.optimize", "scipy.stats")
    code = f"import symjax.cli.chains, sys; print(*set({heavy}) & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == []
