//! A hasher for what the models remember: they hash most of the time, and the standard one costs several times as much
//! without optimisation. Nobody chooses their states to collide.

use std::hash::{BuildHasherDefault, Hasher};

/// A map by it.
pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Folding>>;
/// A set by it.
pub type HashSet<T> = std::collections::HashSet<T, BuildHasherDefault<Folding>>;

/// Folds each word into 64 bits by the upper and the lower half of a product.
#[derive(Clone, Copy, Debug)]
pub struct Folding(u64);

impl Default for Folding {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Folding {
    #[allow(clippy::cast_possible_truncation, reason = "both halves are taken")]
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.fold(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.fold(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.fold(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.fold(word.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
