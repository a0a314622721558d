//! *Internal.* Element types of tensors, and what they are called.

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// Unknown.
    #[default]
    Unknown,
    /// Truth values, a byte each.
    Bool,
    /// Signed integers of 4 bits.
    I4,
    /// Signed integers of 8 bits.
    I8,
    /// Signed integers of 16 bits.
    I16,
    /// Signed integers of 32 bits.
    I32,
    /// Signed integers of 64 bits.
    I64,
    /// Unsigned integers of 4 bits.
    U4,
    /// Unsigned integers of 8 bits.
    U8,
    /// Unsigned integers of 16 bits.
    U16,
    /// Unsigned integers of 32 bits.
    U32,
    /// Unsigned integers of 64 bits.
    U64,
    /// Floats of 8 bits, 4 of them exponent.
    F8E4M3,
    /// Floats of 8 bits, 5 of them exponent.
    F8E5M2,
    /// IEEE floats of 16 bits.
    F16,
    /// Floats of 16 bits with the exponent of `float32`.
    Bf16,
    /// IEEE floats of 32 bits.
    F32,
    /// IEEE floats of 64 bits.
    F64,
    /// Complex numbers of two `float32`.
    C64,
    /// Complex numbers of two `float64`.
    C128,
    /// TensorFlow's quantized integers.
    Quantized,
    /// Strings.
    Text,
    /// A handle to something else, such as a variable of TensorFlow.
    Resource,
    /// A handle to a value of any type.
    Variant,
}

impl Dtype {
    /// Every element type, by its number.
    pub(crate) const ALL: [Dtype; 24] = [
        Dtype::Unknown,
        Dtype::Bool,
        Dtype::I4,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::U4,
        Dtype::U8,
        Dtype::U16,
        Dtype::U32,
        Dtype::U64,
        Dtype::F8E4M3,
        Dtype::F8E5M2,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64,
        Dtype::C64,
        Dtype::C128,
        Dtype::Quantized,
        Dtype::Text,
        Dtype::Resource,
        Dtype::Variant,
    ];

    /// The name as frameworks print it; empty where unknown.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Dtype::Unknown => "",
            Dtype::Bool => "bool",
            Dtype::I4 => "int4",
            Dtype::I8 => "int8",
            Dtype::I16 => "int16",
            Dtype::I32 => "int32",
            Dtype::I64 => "int64",
            Dtype::U4 => "uint4",
            Dtype::U8 => "uint8",
            Dtype::U16 => "uint16",
            Dtype::U32 => "uint32",
            Dtype::U64 => "uint64",
            Dtype::F8E4M3 => "float8_e4m3",
            Dtype::F8E5M2 => "float8_e5m2",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
            Dtype::C64 => "complex64",
            Dtype::C128 => "complex128",
            Dtype::Quantized => "quantized",
            Dtype::Text => "string",
            Dtype::Resource => "resource",
            Dtype::Variant => "variant",
        }
    }

    /// Whether models keep their weights in such numbers.
    #[must_use]
    pub fn is_floating(self) -> bool {
        use Dtype::{Bf16, C64, C128, F8E4M3, F8E5M2, F16, F32, F64};
        matches!(self, F8E4M3 | F8E5M2 | F16 | Bf16 | F32 | F64 | C64 | C128)
    }

    /// Whether this is a handle to something else rather than a tensor's data.
    #[must_use]
    pub fn is_handle(self) -> bool {
        matches!(self, Dtype::Resource | Dtype::Variant)
    }
}
