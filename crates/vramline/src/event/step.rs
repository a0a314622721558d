//! The phase of a step, and how the step is known: the words that recordings, traces and documents share.

/// What a step did, in the order in which phases are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It has a backward pass or an optimizer, or the program says so.
    Train,
    /// Evaluation, as the program says.
    Validation,
    /// Prediction, as the program says.
    Predict,
    /// None of these, as far as is known.
    Other,
}

words!(Phase { Train => "train", Validation => "validation", Predict => "predict", Other => "other" });

/// How a step was found, best evidence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// From Keras.
    Keras,
    /// From a trainer of PyTorch, such as Lightning's.
    Trainer,
    /// From the program, through Vramline's functions.
    Api,
    /// The trace marks it.
    Trace,
    /// It follows from what repeats.
    Inferred,
}

words!(How { Keras => "keras", Trainer => "trainer", Api => "api", Trace => "trace", Inferred => "inferred" });
