"""Settings for all tests: eight virtual CPU devices, no display, a compilation cache.

pytest reads this before any test module, so before JAX starts; processes that tests
start inherit it.
"""

import gc
import importlib
import os
import warnings
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest


CHECKOUT = Path(__file__).resolve().parents[1]

# XLA ends a process that gives it a flag which it doesn't know: 0.11 has this no more.
HAS_OTHER_EMITTERS = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)

FAST_COMPILE = (
    *(("--xla_cpu_use_fusion_emitters=false",) if HAS_OTHER_EMITTERS else ()),
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=8",
        # Compiling is most of the suite's time, and these make it three times faster;
        # the programs are slower, but small. SYMJAX_FAST_COMPILE=0 compiles them as
        # users' machines do.
        *(FAST_COMPILE if os.environ.get("SYMJAX_FAST_COMPILE", "1") != "0" else ()),
    ]
)
# Threads of XLA, which makes no more than there are cores: eight devices' sums and
# decompositions then wait for each other's threads, for ever.
os.environ.setdefault("NPROC", "32")
os.environ["MPLBACKEND"] = "Agg"

# A repeated run finds the compiled programs.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CHECKOUT / ".cache" / "jax")
os.environ.setdefault("SYMJAX_CACHE", str(CHECKOUT / ".cache"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# The xdist workers already fill the cores. They inherit this before loading BLAS.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


# Workers share cores, with whatever else runs there: slow once is no failure.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")


def pytest_collection_finish():
    """Collect no garbage among what was imported: it took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes():
    """ArviZ writes down the day of its first import; two at once would fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("arviz")


@pytest.fixture(autouse=True, scope="module")
def _programs_of_one_file():
    """A worker that kept all compiled programs would hold 4 GB of them at the end."""
    yield
    import jax  # Not before the settings above.

    jax.clear_caches()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets that the repository doesn't hold."""
    folder = Path(os.environ.get("SYMJAX_DATA", CHECKOUT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; SYMJAX_DATA names the one with the data sets")
    return folder
