"""A fake of the interface of Hugging Face's transformers that `vramline.huggingface` uses: `Trainer`, its callbacks and their events.

It trains nothing, and says only that our callback works with an interface like this one. `tests/integrations` has the real package.
"""


class TrainerCallback:
    """Of the real class, the events that exist in every version."""

    def _ignore(self, args, state, control, **kwargs):
        pass

    on_train_begin = on_train_end = on_epoch_begin = on_epoch_end = on_step_begin = on_step_end = on_substep_end = _ignore
    on_log = on_evaluate = on_predict = on_prediction_step = _ignore


class _Handler:
    def __init__(self, callbacks):
        self.callbacks = callbacks

    def call(self, event, trainer, **kwargs):
        for callback in self.callbacks:
            getattr(callback, event)(trainer.args, trainer.state, None, model=trainer.model, optimizer=trainer.optimizer, **kwargs)


class _Facts:
    def __init__(self, **facts):
        self.__dict__ |= facts


class Trainer:
    """Two epochs of two steps; `step(trainer)` and `predict_step(trainer)` are the program's."""

    def __init__(self, model, step, evaluate_step, callbacks, **args):
        self.model, self.optimizer, self._step, self._evaluate_step = model, None, step, evaluate_step
        defaults = {"device": _Facts(type="cuda", index=None), "process_index": 0, "skip_memory_metrics": True}
        self.args, self.state = _Facts(**{**defaults, **args}), _Facts(global_step=0, epoch=None, log_history=[])
        self.callback_handler = _Handler(list(callbacks))

    def log(self, logs):
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.callback_handler.call("on_log", self, logs=logs)

    def train(self):
        call, state = self.callback_handler.call, self.state
        call("on_train_begin", self)
        for epoch in range(2):
            state.epoch = float(epoch)
            call("on_epoch_begin", self)
            for _ in range(2):
                call("on_step_begin", self)
                self._step(self)
                state.global_step += 1
                state.epoch += 0.5
                call("on_step_end", self)
            call("on_epoch_end", self)
            self.log({"loss": 1.0})
        metrics = {"train_runtime": 1.0, "total_flos": 0.0}
        self.log(metrics)
        call("on_train_end", self)
        return metrics

    def evaluate(self, metric_key_prefix="eval"):
        self._evaluate_step(self)
        metrics = {f"{metric_key_prefix}_loss": 1.0, f"{metric_key_prefix}_runtime": 1.0}
        self.log(metrics)
        return metrics

    def predict(self):
        self._evaluate_step(self)
        metrics = {"test_runtime": 1.0}
        self.callback_handler.call("on_predict", self, metrics=metrics)
        return metrics
