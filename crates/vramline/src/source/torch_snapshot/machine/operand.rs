//! Operands: the bytes after an instruction.

use super::Stop;

/// An operand, and the rest of the program.
type Operand<'a, T> = Result<(T, &'a [u8]), Stop>;

/// A number of fixed width, little end first.
pub(super) trait Number: Sized {
    fn split(args: &[u8]) -> Option<(Self, &[u8])>;
}

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Number for $type {
            #[inline]
            fn split(args: &[u8]) -> Option<($type, &[u8])> {
                args.split_first_chunk().map(|(bytes, after)| (<$type>::from_le_bytes(*bytes), after))
            }
        })*
    };
}

numbers!(u8, u16, u32, u64, i32);

/// The next number.
#[inline]
pub(super) fn number<T: Number>(args: &[u8]) -> Operand<'_, T> {
    T::split(args).ok_or_else(|| Stop::Short(size_of::<T>().saturating_sub(args.len())))
}

/// The next `count` bytes.
#[inline]
pub(super) fn take(args: &[u8], count: usize) -> Operand<'_, &[u8]> {
    args.split_at_checked(count).ok_or_else(|| Stop::Short(count.saturating_sub(args.len())))
}

/// A length, and as many bytes.
#[inline]
pub(super) fn counted<T: Number + TryInto<usize>>(args: &[u8]) -> Operand<'_, &[u8]> {
    let (length, after) = number::<T>(args)?;
    take(after, length.try_into().unwrap_or(usize::MAX))
}

/// The bytes up to the end of the line.
pub(super) fn line(args: &[u8]) -> Operand<'_, &[u8]> {
    match args.iter().position(|&byte| byte == b'\n') {
        Some(end) => {
            let (line, after) = args.split_at(end);
            Ok((line, after.get(1..).unwrap_or_default()))
        }
        None => Err(Stop::Short(1)),
    }
}
