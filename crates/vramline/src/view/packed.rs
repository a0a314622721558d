//! Packs long columns of numbers as text, with a few bytes per number. `web/src/data.ts` unpacks them.

/// Numbers as differences from the previous one, seven bits per byte, with the sign in the lowest bit.
#[derive(Default)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    pub(super) fn column(&mut self, values: impl Iterator<Item = i64>) {
        let mut before = 0_i64;
        for value in values {
            let change = value.wrapping_sub(before);
            before = value;
            let mut left = (change.wrapping_shl(1) ^ (change >> 63)).cast_unsigned();
            while left >= 0x80 {
                self.0.push((left & 0x7f) as u8 | 0x80);
                left >>= 7;
            }
            self.0.push(left as u8);
        }
    }

    /// A column of sizes; values above 63 bits are clamped.
    pub(super) fn bytes(&mut self, values: &[u64]) {
        self.column(values.iter().map(|&bytes| i64::try_from(bytes).unwrap_or(i64::MAX)));
    }

    /// A column of indices.
    pub(super) fn places(&mut self, values: impl Iterator<Item = usize>) {
        self.column(values.map(|place| i64::try_from(place).unwrap_or(i64::MAX)));
    }

    pub(super) fn base64(&self) -> String {
        const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::with_capacity(self.0.len().div_ceil(3) * 4);
        for part in self.0.chunks(3) {
            let byte = |at: usize| part.get(at).copied().map_or(0, u32::from);
            let word = byte(0) << 16 | byte(1) << 8 | byte(2);
            for at in 0..4_usize {
                let sign = SIGNS.get((word >> (18 - 6 * at) & 63) as usize).copied().unwrap_or(b'=');
                text.push(if at <= part.len() { char::from(sign) } else { '=' });
            }
        }
        text
    }
}
