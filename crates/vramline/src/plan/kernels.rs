//! Ops for which libraries choose another kernel at another size, with other scratch memory: what no small probe need show.

use std::collections::BTreeSet;

/// A kind of op whose kernel depends on the size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizedKernel {
    /// Convolutions, plain, depthwise or transposed.
    Convolution,
    /// Attention.
    Attention,
    /// Sorting, and the largest of many.
    Sorting,
}

words!(SizedKernel {
    Convolution => "convolutions",
    Attention => "attention",
    Sorting => "sorting",
});

impl SizedKernel {
    /// The kinds among the names of ops, each once.
    pub(super) fn among<'a>(names: impl Iterator<Item = &'a str>) -> Vec<SizedKernel> {
        let found: BTreeSet<SizedKernel> = names.filter_map(SizedKernel::of).collect();
        found.into_iter().collect()
    }

    fn of(name: &str) -> Option<SizedKernel> {
        let name = name.to_ascii_lowercase();
        let mut parts = name.split('/');
        parts.find_map(|part| {
            let has = |words: &[&str]| words.iter().any(|word| part.contains(word));
            if has(&["attention"]) {
                Some(SizedKernel::Attention)
            } else if has(&["conv"]) && !has(&["convert"]) {
                Some(SizedKernel::Convolution)
            } else if has(&["sort", "topk", "top_k"]) {
                Some(SizedKernel::Sorting)
            } else {
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_kind() {
        let names = [
            "model/dense/MatMul",
            "convert_to_tensor",
            "gradient_tape/model/conv3d_1/Conv3DBackpropFilterV2",
        ];
        assert_eq!(SizedKernel::among(names.into_iter()), [SizedKernel::Convolution]);
        let names = ["model/multi_head_attention/softmax/Softmax", "in_top_k/TopKV2", "x/argsort/TopKV2"];
        assert_eq!(SizedKernel::among(names.into_iter()), [SizedKernel::Attention, SizedKernel::Sorting]);
    }
}
