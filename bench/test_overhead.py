"""What does the engine cost? An epoch under it against the articles' loop written out, on the same loader.

    pytest bench/test_overhead.py --benchmark-only

The two take turns, an epoch of 20 steps of the CNN each, the smallest step of the suites; the ratio is that of the
medians.
"""

from statistics import median
from time import perf_counter

from torch import nn

from epochbench import ARTICLE, training
from epochbench.loading import open_feed
from epochbench.measure.task import Progress
from models import cnn

STEPS, ROUNDS, WARM_ROUNDS = 20, 120, 5


def test_overhead(benchmark, capsys, race_data):
    workload = cnn.workload(race_data)
    feed = open_feed(workload.train_data, batch_size=workload.batch_size, device="cpu", seed=0)
    mine, theirs = (training.start(workload, ARTICLE, "cpu", seed=0) for _ in range(2))
    progress = Progress([0] * 5)
    by_hand_seconds = []

    def epoch():
        trail = training.LossTrail(STEPS, "cpu", ARTICLE.read_loss_each_step)
        training.train(mine, feed.epoch(1, STEPS), trail, progress.step)

    def by_hand():
        model, optimizer, criterion = theirs.model, theirs.optimizer, nn.CrossEntropyLoss()
        began = perf_counter()
        feed.set_order(1, STEPS)
        running_loss = 0.0
        for inputs, labels in feed.loader:
            inputs, labels = inputs.to("cpu"), labels.to("cpu")
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        by_hand_seconds.append(perf_counter() - began)

    benchmark.pedantic(epoch, setup=by_hand, rounds=ROUNDS, warmup_rounds=WARM_ROUNDS)
    if benchmark.enabled:
        ratio = median(benchmark.stats.stats.data) / median(by_hand_seconds[WARM_ROUNDS:])
        benchmark.extra_info["ratio_to_the_loop_by_hand"] = ratio
        with capsys.disabled():
            print(f"\nan epoch under the engine takes {ratio:.3f} times the same loop by hand")
