//! What a program that failed needs at least, from what its recording knows of its variables.
//!
//! A job that dies in its first step has not asked for everything yet: when PyTorch's optimizer steps, parameters, gradients and the
//! optimizer's state are there together. How much state comes depends on the optimizer's class. What is not certain is not counted:
//! a class that is not known brings nothing. TensorFlow frees each gradient when its variable is updated, so that nothing follows there.

use crate::recording::rows::Variable;
use crate::snapshot::Role;
use crate::units::Bytes;

/// What the update of a program needs at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeastNeed {
    /// The parameters that the optimizer updates.
    pub parameters: Bytes,
    /// Their gradients.
    pub gradients: Bytes,
    /// The optimizer's state, also what is still to come.
    pub optimizer: Bytes,
    /// The optimizer's class.
    pub class: String,
}

impl LeastNeed {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.parameters + self.gradients + self.optimizer
    }

    /// Leaves out a class that is not PyTorch's own.
    pub(crate) fn hide_class(&mut self) {
        if self.class != "SGD" && slots(&self.class) == 0 {
            self.class = "an optimizer".to_owned();
        }
    }

    /// From the variables that a PyTorch optimizer was given, on one device.
    #[must_use]
    pub fn of(variables: &[Variable], device: Option<&str>) -> Option<LeastNeed> {
        let is_here = |variable: &&Variable| device.is_none() || variable.device.as_deref() == device;
        let mut classes: Vec<&str> = Vec::new();
        let (mut parameters, mut state, mut to_come) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        for variable in variables.iter().filter(is_here) {
            let Some(class) = variable.owner.as_deref() else { continue };
            match variable.role {
                Role::Parameters => {
                    parameters += variable.bytes;
                    to_come += Bytes(variable.bytes.0.saturating_mul(slots(class)));
                    if !classes.contains(&class) {
                        classes.push(class);
                    }
                }
                Role::Optimizer => state += variable.bytes,
                _ => {}
            }
        }
        (parameters > Bytes::ZERO).then(|| LeastNeed {
            parameters,
            gradients: parameters,
            optimizer: state.max(to_come),
            class: classes.join(", "),
        })
    }
}

/// How many values of its size an optimizer of PyTorch keeps for each parameter, at least.
fn slots(class: &str) -> u64 {
    match class {
        "Adam" | "AdamW" | "NAdam" | "RAdam" | "Adamax" | "Adadelta" => 2,
        "RMSprop" | "Adagrad" | "ASGD" | "Rprop" => 1,
        // Without momentum SGD keeps nothing, and others are not known.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(owner: Option<&str>, role: Role, bytes: u64, device: &str) -> Variable {
        Variable {
            owner: owner.map(str::to_owned),
            role,
            bytes: Bytes(bytes),
            device: Some(device.to_owned()),
            ..Variable::default()
        }
    }

    #[test]
    fn an_update_needs_parameters_gradients_and_state() {
        let before = [variable(Some("AdamW"), Role::Parameters, 100, "GPU:0")];
        let need = LeastNeed::of(&before, Some("GPU:0")).unwrap();
        assert_eq!((need.total(), need.optimizer, need.class.as_str()), (Bytes(400), Bytes(200), "AdamW"));
        // Steps are counted in state too: what is there is more than what was reckoned.
        let after = [before[0].clone(), variable(Some("AdamW"), Role::Optimizer, 204, "GPU:0")];
        assert_eq!(LeastNeed::of(&after, Some("GPU:0")).unwrap().total(), Bytes(404));
        let unknown = [variable(Some("Own"), Role::Parameters, 100, "GPU:0")];
        assert_eq!(LeastNeed::of(&unknown, Some("GPU:0")).unwrap().total(), Bytes(200));
        // Of another device, or without an optimizer.
        assert_eq!(LeastNeed::of(&before, Some("GPU:1")), None);
        assert_eq!(LeastNeed::of(&[variable(None, Role::Parameters, 100, "GPU:0")], None), None);
    }
}
