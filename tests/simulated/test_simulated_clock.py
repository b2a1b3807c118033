"""The virtual clock, by hand-counted microseconds."""

import pytest

from tests.simulated.clock import Event, SimulatedClock

MICROSECOND = 1e-6


def queued(operations, *, launch, work):
    clock = SimulatedClock(launch_seconds=launch * MICROSECOND)
    for _ in range(operations):
        clock.submit(work * MICROSECOND)
    return clock


def test_the_host_goes_on_while_the_device_works_until_it_waits():
    clock = queued(10, launch=5, work=20)
    assert clock() == pytest.approx(50 * MICROSECOND)
    assert clock.timeline() == pytest.approx((5 + 10 * 20) * MICROSECOND)
    clock.synchronize()
    assert clock() == pytest.approx(205 * MICROSECOND)


def test_small_operations_are_bound_by_their_launches():
    clock = queued(10, launch=5, work=1)
    clock.synchronize()
    assert clock() == pytest.approx((10 * 5 + 1) * MICROSECOND)


def test_a_slow_loader_leaves_the_device_idle():
    clock = queued(1, launch=5, work=20)
    clock.advance(100 * MICROSECOND)
    clock.submit(20 * MICROSECOND)
    clock.synchronize()
    assert clock() == pytest.approx((5 + 100 + 5 + 20) * MICROSECOND)


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="-1"):
        SimulatedClock().advance(-1)


def test_an_event_counts_the_time_of_the_device():
    clock = queued(1, launch=5, work=20)
    start, end = Event(clock, enable_timing=True), Event(clock, enable_timing=True)
    start.record()
    for _ in range(3):
        clock.submit(20 * MICROSECOND)
    end.record()
    clock.submit(1000 * MICROSECOND)
    with pytest.raises(RuntimeError, match="not ready"):
        start.elapsed_time(end)
    end.synchronize()
    assert clock() == pytest.approx(85 * MICROSECOND)
    assert start.elapsed_time(end) == pytest.approx(3 * 20e-3)


def test_an_event_without_timing_or_record_tells_no_time():
    clock = SimulatedClock()
    with pytest.raises(RuntimeError, match="enable_timing"):
        Event(clock).elapsed_time(Event(clock))
    with pytest.raises(RuntimeError, match="recorded"):
        Event(clock, enable_timing=True).elapsed_time(Event(clock, enable_timing=True))
