"""A fake of the interface of Lightning that `vramline.lightning` uses: the trainer's facts, its loggers, and the events of a callback.

It trains nothing, and says only that our callback works with an interface like this one. `tests/integrations` has the real packages.
"""


class Callback:
    pass


class _Facts:
    def __init__(self, **facts):
        self.__dict__ |= facts


class Logger:
    def __init__(self):
        self.lines = []

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, dict(metrics)))


class Trainer:
    """One epoch of four batches with two accumulated, a validation, and a line of the log for each step."""

    def __init__(self, step, validation_step, callbacks):
        self.callbacks, self.loggers, self.log_every_n_steps = list(callbacks), [Logger()], 1
        self.strategy = _Facts(root_device=_Facts(type="cuda", index=0))
        self.global_rank = self.global_step = self.current_epoch = 0
        self.optimizers, self.sanity_checking = [], False
        self.fit_loop = _Facts(epoch_loop=_Facts(_batches_that_stepped=0))
        self._step, self._validation_step = step, validation_step

    def call(self, event, *args, **kwargs):
        for callback in self.callbacks:
            if hasattr(callback, event):
                getattr(callback, event)(self, None, *args, **kwargs)

    def fit(self):
        try:
            self._fit()
        except BaseException as error:
            self.call("on_exception", error)
            raise

    def _fit(self):
        self.call("setup", stage="fit")
        self.call("on_train_start")
        self.call("on_train_epoch_start")
        for number in range(4):
            self.call("on_train_batch_start", None, number)
            self._step()
            if number % 2:
                self.global_step += 1
            self.call("on_train_batch_end", None, None, number)
            if number % 2:
                self.fit_loop.epoch_loop._batches_that_stepped += 1
        self.validate()
        self.call("on_train_epoch_end")
        self.call("on_train_end")
        self.call("teardown", stage="fit")

    def validate(self):
        self.call("on_validation_start")
        self._validation_step()
        self.call("on_validation_end")
