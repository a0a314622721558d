//! What ran when PyTorch allocated, as its allocator was told: a module in one of its passes.
//!
//! Entries of PyTorch's history carry a text that the program may set. Vramline sets it to the module that runs. A program that sets it
//! itself names what it likes.

/// How the recorder begins its texts: this, the pass, the root module and the path below it, with colons between them.
const PREFIX: &str = "vramline:";
/// How PyTorch begins the names of the regions that `torch.compile` made.
const COMPILED: &str = "Torch-Compiled Region";

/// The part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModulePass {
    /// The module's forward pass.
    Forward,
    /// The module's backward pass.
    Backward,
    /// A function that `torch.compile` made.
    Compiled,
    /// The program itself set the text.
    Program,
}

impl ModulePass {
    /// The pass that the recorder wrote.
    pub(crate) fn of_word(word: &str) -> Option<ModulePass> {
        match word {
            "forward" => Some(ModulePass::Forward),
            "backward" => Some(ModulePass::Backward),
            _ => None,
        }
    }
}

/// What ran when a block was allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCall {
    /// The part of the step.
    pub pass: ModulePass,
    /// The root module, where it is a model.
    pub model: Option<String>,
    /// The path below it; empty for the root itself. Otherwise the text.
    pub path: String,
}

impl ModuleCall {
    /// Of the text that an entry carries.
    pub(crate) fn of_metadata(text: &str) -> Option<ModuleCall> {
        let own = |text: &str| ModuleCall { pass: ModulePass::Program, model: None, path: text.to_owned() };
        let Some(told) = text.strip_prefix(PREFIX) else {
            return (!text.is_empty()).then(|| own(text));
        };
        let mut parts = told.splitn(3, ':');
        let Some(pass) = parts.next().and_then(ModulePass::of_word) else { return Some(own(text)) };
        let (Some(model), Some(path)) = (parts.next(), parts.next()) else { return Some(own(text)) };
        let model = (!model.is_empty()).then(|| model.to_owned());
        Some(ModuleCall { pass, model, path: path.to_owned() })
    }

    /// Of the compiled region that an entry tells of; PyTorch writes `N/A` where there is none.
    pub(crate) fn of_region(text: &str) -> Option<ModuleCall> {
        let number = text.strip_prefix(COMPILED)?.trim_start_matches([':', ' ']);
        let path = format!("compiled region {number}").trim_end().to_owned();
        Some(ModuleCall { pass: ModulePass::Compiled, model: None, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(pass: ModulePass, model: Option<&str>, path: &str) -> ModuleCall {
        ModuleCall { pass, model: model.map(str::to_owned), path: path.to_owned() }
    }

    #[test]
    fn texts_of_the_recorder_are_taken_apart() {
        let of = |text: &str| ModuleCall::of_metadata(text).expect("a call");
        assert_eq!(of("vramline:forward:Net:layers.3"), call(ModulePass::Forward, Some("Net"), "layers.3"));
        assert_eq!(of("vramline:backward:Net:"), call(ModulePass::Backward, Some("Net"), ""));
        assert_eq!(of("vramline:forward::Loss"), call(ModulePass::Forward, None, "Loss"));
        // A key of a dictionary of modules may have colons.
        assert_eq!(of("vramline:forward:Net:a.b:c"), call(ModulePass::Forward, Some("Net"), "a.b:c"));
    }

    #[test]
    fn any_other_text_is_the_programs_own() {
        for text in
            ["vramline:", "vramline:forward", "vramline:sideways:Net:a", "vramline:forward:Net", "block 3"]
        {
            let own = call(ModulePass::Program, None, text);
            assert_eq!(ModuleCall::of_metadata(text), Some(own), "{text}");
        }
        assert_eq!(ModuleCall::of_metadata(""), None);
    }

    #[test]
    fn regions_of_the_compiler_have_their_number() {
        let region = call(ModulePass::Compiled, None, "compiled region 0/1");
        assert_eq!(ModuleCall::of_region("Torch-Compiled Region: 0/1"), Some(region));
        assert_eq!(ModuleCall::of_region("N/A"), None);
    }
}
