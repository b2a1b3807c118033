import pytest

from epochbench.replay import ReplayTimer

timer = ReplayTimer()
marked = ReplayTimer()


@pytest.mark.benchmark(timer=timer)
def test_each_duration_becomes_one_round(benchmark):
    timer.play(benchmark, [1.5, 0.25, 3.0])
    if benchmark.enabled:
        assert benchmark.stats.stats.data == [1.5, 0.25, 3.0]


def test_a_timer_has_a_name_for_the_json_and_bears_an_extra_call():
    assert ReplayTimer().__name__ == "epochbench.replay"
    assert ReplayTimer()() == 0.0
