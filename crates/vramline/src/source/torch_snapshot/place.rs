//! Chooses the frame of a traceback that names an allocation: the innermost one that is not PyTorch's own.
//!
//! Tracebacks contain Python frames and, if requested, C++ frames. People look for the place in their own program;
//! if a thread runs no Python, as in the backward pass, the operator names the allocation.

use std::borrow::Cow;

use super::traceback::{Frame, Tracebacks};
use crate::names::{Name, Names};

/// Parts of PyTorch's own package, wherever it was built.
const TORCH: [&str; 9] = [
    "-packages/torch/",
    "/torch/nn/",
    "/torch/optim/",
    "/torch/autograd/",
    "/torch/utils/",
    "/torch/cuda/",
    "/torch/_dynamo/",
    "/torch/_inductor/",
    "/torch/_functorch/",
];

/// The owner of a frame's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A program or a library that uses PyTorch.
    User,
    /// PyTorch or Python itself.
    Torch,
    /// C++.
    Native,
}

/// A path with slashes instead of the backslashes that Python writes on Windows.
fn path(file: &str) -> Cow<'_, str> {
    if file.contains('\\') { Cow::Owned(file.replace('\\', "/")) } else { Cow::Borrowed(file) }
}

/// Whether a path with slashes begins with a drive: `C:/`.
fn has_drive(file: &str) -> bool {
    matches!(file.as_bytes(), [drive, b':', b'/', ..] if drive.is_ascii_alphabetic())
}

/// Whether `torch.compile` generated a file: the cache names it by a digest, in a folder of two letters of that digest. PyTorch puts the
/// lines of the program that the generated line comes from behind its frame.
fn is_generated(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    let (Some(name), Some(folder)) = (parts.next(), parts.next()) else { return false };
    let Some(digest) = name.strip_suffix(".py") else { return false };
    digest.len() > 40
        && digest.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
        && folder.len() == 2
        && digest.get(1..3) == Some(folder)
}

fn owner(file: &str) -> Owner {
    let file = &*path(file);
    if !file.ends_with(".py") && !file.starts_with('<') {
        return Owner::Native;
    }
    let is_library = file.contains("/lib/python3") || has_drive(file) && file.contains("/Lib/");
    let is_python = file.starts_with("<frozen") || is_library && !file.contains("-packages/");
    let is_torch = is_python || is_generated(file) || TORCH.iter().any(|part| file.contains(part));
    if is_torch { Owner::Torch } else { Owner::User }
}

/// A frame as one line: `file:line function`, or the function alone where there is no line.
pub(crate) fn text(frame: &Frame, names: &Names) -> String {
    let (file, function) = (path(names.get(frame.file)), names.get(frame.function));
    match (&*file, frame.line) {
        ("" | "??", 0) => function.to_owned(),
        (file, 0) => format!("{file} {function}"),
        (file, line) => format!("{file}:{line} {function}"),
    }
}

/// The same with the last two parts of the path.
fn short(frame: &Frame, names: &Names) -> String {
    let whole = text(frame, names);
    let file = path(names.get(frame.file));
    let cut = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    whole.get(cut..).unwrap_or(&whole).to_owned()
}

/// A native function without its arguments.
fn bare(function: &str) -> &str {
    let end = function.find('(').filter(|&at| at > 0).unwrap_or(function.len());
    function.get(..end).unwrap_or(function)
}

/// The node of the backward pass that a native frame runs.
fn backward_node(function: &str) -> Option<&str> {
    let (_, rest) = function.split_once("torch::autograd::generated::")?;
    let (node, _) = rest.split_once("::apply")?;
    Some(node)
}

/// The name of a traceback; empty where it has no frames.
pub(crate) fn name_of(list: u32, tracebacks: &Tracebacks, names: &mut Names) -> Name {
    let frames = || tracebacks.frames(list).iter().filter_map(|&frame| tracebacks.get(frame));
    let of =
        |wanted: Owner, names: &Names| frames().find(|frame| owner(names.get(frame.file)) == wanted).copied();
    let python = of(Owner::User, names).or_else(|| of(Owner::Torch, names));
    if let Some(frame) = python {
        let text = short(&frame, names);
        return names.intern(&text);
    }
    let functions = || frames().map(|frame| names.get(frame.function));
    let operator = |function: &&str| function.starts_with("at::_ops::");
    let own = |function: &&str| {
        !["torch::unwind", "torch::CapturedTraceback", "torch::cuda::", "c10::cuda::CUDACachingAllocator"]
            .iter()
            .any(|part| function.starts_with(part))
    };
    let text = functions()
        .find_map(backward_node)
        .or_else(|| functions().find(operator).map(bare))
        .or_else(|| functions().find(own).map(bare))
        .unwrap_or_default()
        .to_owned();
    names.intern(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(frames: &[(&str, &str, u32)]) -> String {
        let (mut names, mut tracebacks) = (Names::default(), Tracebacks::default());
        let numbers: Vec<u32> = frames
            .iter()
            .map(|&(function, file, line)| {
                let frame = Frame { function: names.intern(function), file: names.intern(file), line };
                tracebacks.frame(frame).unwrap()
            })
            .collect();
        let list = tracebacks.intern(&numbers).unwrap();
        let name = name_of(list, &tracebacks, &mut names);
        names.get(name).to_owned()
    }

    #[test]
    fn the_innermost_frame_of_the_program_names() {
        let lib = "/v/lib/python3.12/site-packages";
        assert_eq!(
            named(&[
                ("c10::cuda::CUDACachingAllocator::malloc()", "??", 0),
                ("_conv_forward", &format!("{lib}/torch/nn/modules/conv.py"), 548),
                ("forward", &format!("{lib}/torchvision/models/resnet.py"), 152),
                ("main", "/home/me/train.py", 12),
            ]),
            "models/resnet.py:152 forward"
        );
        assert_eq!(
            named(&[
                ("step", &format!("{lib}/torch/optim/adam.py"), 9),
                ("run", "/usr/lib/python3.12/runpy.py", 1)
            ]),
            "optim/adam.py:9 step"
        );
        assert_eq!(named(&[("main", "/opt/torch/train.py", 12)]), "torch/train.py:12 main");
        assert_eq!(named(&[("<module>", "<stdin>", 1)]), "<stdin>:1 <module>");
        assert_eq!(
            named(&[
                ("at::_ops::convolution_backward::call(at::Tensor)", "??", 0),
                ("torch::autograd::generated::ConvolutionBackward0::apply(std::vector<>&&)", "??", 0),
            ]),
            "ConvolutionBackward0"
        );
        assert_eq!(named(&[("at::_ops::empty::call(long)", "??", 0)]), "at::_ops::empty::call");
        assert_eq!(named(&[]), "");
    }

    #[test]
    fn a_compiled_function_is_named_by_the_line_that_was_compiled() {
        let digest = "yx/cyxcmef53lcsnpnmrsnerafwrxwc5ig4ck5y2eo7v7t66yjjxh4m.py";
        let frames = [
            ("call", &*format!("/tmp/torchinductor_me/{digest}"), 560),
            ("forward", "/home/me/model.py", 33),
            ("run", "/v/lib/python3.12/site-packages/torch/_inductor/utils.py", 3401),
            ("main", "/home/me/train.py", 12),
        ];
        assert_eq!(named(&frames), "me/model.py:33 forward");
        assert_eq!(named(&frames[..1]), format!("{digest}:560 call"));
        assert!(!is_generated("/home/me/yx/model.py") && !is_generated(&digest.replace("yx/", "zz/")));
    }

    #[test]
    fn windows_paths_are_split_too() {
        let lib = r"D:\work\.venv\Lib\site-packages";
        assert_eq!(
            named(&[
                ("linear", &format!(r"{lib}\torch\nn\functional.py"), 12),
                ("forward", r"D:\work\course\model.py", 102),
                ("_run_code", r"C:\Users\me\AppData\Python\cpython-3.12\Lib\runpy.py", 88),
            ]),
            "course/model.py:102 forward"
        );
        assert_eq!(
            named(&[
                ("step", &format!(r"{lib}\torch\optim\adamw.py"), 9),
                ("_run_code", r"C:\Python312\Lib\runpy.py", 88)
            ]),
            "optim/adamw.py:9 step"
        );
        // A directory of the program's own may have any name.
        assert_eq!(named(&[("main", "/home/me/Lib/train.py", 3)]), "Lib/train.py:3 main");
    }
}
