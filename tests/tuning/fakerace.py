"""A race that measures nothing: its times come from a table, and pass on a clock of its own."""

import math

from epochbench.measure.contenders import Standing
from epochbench.records.schema import EpochRecord, MeasurementRecord

STEPS, BATCH, STEP_SECONDS = 100, 10, 0.01
"""Of an epoch, of a step, and of the article's loop: 1 s an epoch, which is whole, and 10 of them are the job."""


class FakeRace:
    """Takes the place of `measure.race.race`.

    `factors` maps a field of a recipe, or (field, value), to what it makes of the article's step; `noise` maps a
    field to factors by replicate. `first_step`, `status` and `losses` map a field to what becomes of them. A
    measurement takes `cost` seconds of `clock`, the preparation `preparing`; `threads` compute, and other processes
    take `other_cpu_share` of the CPUs. `at` calls a function before the
    measurement of that number, from 1. `raced` are the recipes of each race, `order` those of each measurement.
    """

    def __init__(self, **table):
        self.factors, self.noise, self.first_step, self.status, self.losses, self.at = (
            table.pop(name, {}) for name in ("factors", "noise", "first_step", "status", "losses", "at")
        )
        usual = {"cost": 10.0, "preparing": 2.0, "threads": 8, "other_cpu_share": 0.0}
        self.cost, self.preparing, self.threads, self.share = (table.pop(name, usual[name]) for name in usual)
        assert not table
        self.began = self.now = 1000.0
        self.measured, self.raced, self.order = 0, [], []

    def clock(self):
        return self.now

    def __call__(self, workload, contenders, options, hooks, *, prepare=None):
        self.raced.append([one.recipe for one in contenders])
        self.tell(hooks, workload, contenders[0], 0)
        self.now += self.preparing
        self.tell(hooks, workload, contenders[0], 0)
        for replicate in range(1, options.replicates + 1):
            for one in contenders if replicate % 2 else contenders[::-1]:
                self.measure(workload, one, replicate, hooks)

    def tell(self, hooks, workload, contender, replicate):
        hooks.on_standing(
            Standing(workload=workload.name, contender=contender.id, replicate=replicate, replicates=3, left=1,
                     seconds_left=None, counters=[0] * 5)
        )  # fmt: skip

    def measure(self, workload, contender, replicate, hooks):
        self.measured += 1
        recipe = contender.recipe
        who = {"workload": workload.name, "recipe": recipe.name, "device": contender.device}
        try:
            self.at.get(self.measured, lambda: None)()
        except KeyboardInterrupt:
            hooks.on_records([MeasurementRecord(**who, replicate=replicate, status="interrupted", reason="Ctrl-C")])
            raise
        self.tell(hooks, workload, contender, replicate)
        ended = self.of(self.status, recipe)
        if ended:
            where = {} if ended[-1][0] == "skipped" else {"replicate": replicate}
            hooks.on_records([MeasurementRecord(**who, **where, status=ended[-1][0], reason=ended[-1][1])])
            return
        self.order.append(recipe.name)
        for _ in range(10):
            self.now += self.cost / 10
            self.tell(hooks, workload, contender, replicate)
        who["replicate"] = replicate
        hooks.on_records([*self.epochs(who, recipe, replicate), self.measurement(who, recipe, workload)])

    def of(self, table, recipe):
        """What the table says of the recipe's settings; a list says it measurement by measurement."""
        found = []
        for key, value in table.items():
            field, wanted = key if isinstance(key, tuple) else (key, True)
            if getattr(recipe, field) == wanted:
                found.append(value(self.measured) if callable(value) else value)
        return found

    def epochs(self, who, recipe, replicate):
        noise = [of_replicate[replicate - 1] for of_replicate in self.of(self.noise, recipe)]
        seconds = STEPS * STEP_SECONDS * math.prod(self.of(self.factors, recipe) + noise)
        common = {"steps": STEPS, "samples": STEPS * BATCH, "mean_loss": 1.0}
        return [
            EpochRecord(**who, epoch=0, warmup=True, seconds=9.0, **common),
            EpochRecord(**who, epoch=1, seconds=seconds, **common),
        ]

    def measurement(self, who, recipe, workload):
        gap = sum(self.of(self.losses, recipe))
        return MeasurementRecord(
            **who, status="ok", data="numbers", batch_size=BATCH, precision=recipe.precision, seed=0,
            job_epochs=workload.epochs, steps_per_epoch=STEPS, epoch_steps=STEPS, whole_epochs=True,
            evaluation_steps_per_epoch=0, train_samples=STEPS * BATCH, threads=self.threads,
            recipe_settings=recipe.settings, weights_hash="w", order_hash="o", synchronized=True,
            other_cpu_share=self.share, first_step_seconds=sum(self.of(self.first_step, recipe)),
            losses=[(1 + gap) * 2.0 * 0.97**step for step in range(32)],
        )  # fmt: skip
