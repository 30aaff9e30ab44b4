"""What ends a run before its time."""


class Stopped(RuntimeError):
    """The run was asked to stop; everything up to its last chunk is saved."""


class Preempted(Stopped):
    """The run was asked to stop by SIGTERM, as machines that are taken away do."""


class OutOfTime(Stopped):
    """The time that the run may take was over before its first draw."""


class NonFiniteError(ArithmeticError):
    """A chain reached parameters or a log density that are not finite."""
