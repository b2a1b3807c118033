"""Virtual time of a host and of the device that works for it: no sleep, the same figures on every machine."""


class SimulatedClock:
    """Host time and the device's queue; calling it reads the host's seconds, like `time.perf_counter()`.

    An operation is submitted: the host spends `launch_seconds` on it and goes on; the device does it when it
    has done what was submitted before. Only a wait (`synchronize`) or a read of a result (`read`) brings the
    host to the device's time. Operations on CPU tensors take no time here: `advance` adds it (a slow loader).
    """

    def __init__(
        self,
        *,
        launch_seconds: float = 5e-6,
        slow_start_seconds: float = 0.0,
        broken_synchronize: bool = False,
    ) -> None:
        if min(launch_seconds, slow_start_seconds) < 0:
            raise ValueError("launch_seconds and slow_start_seconds must be 0 or more")
        self.launch_seconds = launch_seconds
        self.slow_start_seconds = slow_start_seconds
        self.broken_synchronize = broken_synchronize
        self.host_seconds = 0.0
        self.busy_until_seconds = 0.0
        self.launches = 0
        self._started = False

    def __call__(self) -> float:
        return self.host_seconds

    def advance(self, seconds: float) -> None:
        """Let the host spend `seconds` on something of its own. Raises ValueError for less than 0."""
        if seconds < 0:
            raise ValueError(f"seconds must be 0 or more, not {seconds}: time does not go back")
        self.host_seconds += seconds

    def timeline(self) -> float:
        """The time at which host and device have done all: the truth that a measurement must not undercut."""
        return max(self.host_seconds, self.busy_until_seconds)

    def start(self) -> None:
        """The first use of the device makes its context: `slow_start_seconds` of the host's time, once."""
        if not self._started:
            self._started = True
            self.host_seconds += self.slow_start_seconds

    def submit(self, work_seconds: float) -> None:
        self.host_seconds += self.launch_seconds
        self.busy_until_seconds = self.timeline() + work_seconds
        self.launches += 1

    def synchronize(self) -> None:
        """Wait for the device; with `broken_synchronize` return at once, as a dishonest backend would."""
        self.start()
        if not self.broken_synchronize:
            self.host_seconds = self.timeline()

    def read(self, transfer_seconds: float = 0.0) -> None:
        """A result comes to the host once the device has made it; `broken_synchronize` cannot avoid that."""
        self.host_seconds = self.busy_until_seconds = self.timeline() + transfer_seconds


class Event:
    """A mark in the device's queue, with the methods of `torch.cuda.Event` that timing needs."""

    def __init__(
        self,
        clock: SimulatedClock,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self._clock = clock
        self._enable_timing = enable_timing
        self._seconds: float | None = None

    def record(self, stream: object = None) -> None:
        self._clock.start()
        self._seconds = self._clock.timeline()

    def query(self) -> bool:
        """Whether the host knows the mark to be passed."""
        return self._seconds is None or self._seconds <= self._clock()

    def synchronize(self) -> None:
        """Wait until the device has passed the mark (not for what was submitted after it)."""
        if self._seconds is not None and not self._clock.broken_synchronize:
            self._clock.host_seconds = max(self._clock.host_seconds, self._seconds)

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds of device time from this mark to `end`. Raises RuntimeError where CUDA's events do."""
        if not (self._enable_timing and end._enable_timing):
            raise RuntimeError("both events need enable_timing=True for elapsed_time")
        if self._seconds is None or end._seconds is None:
            raise RuntimeError("both events must be recorded before elapsed_time")
        if not self._clock.broken_synchronize and not (self.query() and end.query()):
            raise RuntimeError("device not ready: synchronize before elapsed_time")
        return (end._seconds - self._seconds) * 1e3
