"""Trains one of the small models of `models/train.py`, as it is, and writes down what TensorFlow itself knows.

python model.py MODEL FACTS
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import keras
import train

name, path = sys.argv[1:]
keras.utils.set_random_seed(7)
model, optimizer, (x, y) = train.MODELS[name](keras)
train_by = train.train_by_tape if name.startswith("tape") else train.train_by_fit
train_by(keras, model, optimizer, x, y, lambda: None)
optimizer = model.optimizer if train.is_compiled(model) else optimizer
# A function of Keras 2's optimizers, in the wrapper that scales the loss; else a list.
states = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
facts = train.tf.config.experimental.get_memory_info(train.DEVICE)
# Seeds and metrics are variables of the model too, but nothing that is trained or kept.
facts["parameters"] = sum(variable["nbytes"] for variable in train.described(model.weights))
facts["optimizer"] = sum(variable["nbytes"] for variable in train.described(states))
facts["scalars"] = sum(not train.is_tensor(variable) for variable in [*model.weights, *states])
with open(path, "w", encoding="utf-8") as file:
    json.dump(facts, file)
