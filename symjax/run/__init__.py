"""The one loop: every sampler and every approximation runs through it.

Jitted chunks of iterations on the mesh; between chunks the host keeps the draws, saves
the state, draws the progress bar and looks for trouble. The key of an iteration is made
from the chain and the iteration alone, so that neither the length of a chunk, nor an
interruption, nor the number of devices changes what is drawn.
"""

from symjax.run.api import NewRun, Result, fit, sample
from symjax.run.errors import NonFiniteError, OutOfTime, Preempted, Stopped
from symjax.run.trouble import describe_divergences, describe_stuck_chains
