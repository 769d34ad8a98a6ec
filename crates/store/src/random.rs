//! Randomness as a parameter: the system's in production, a fixed sequence in tests.

use std::fmt::Debug;

/// A source of random bytes fit for secrets.
pub trait Random: Debug + Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// So many random bytes.
pub fn bytes<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes
}

/// The operating system's source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// If the operating system gives no randomness: nothing secret can be made then.
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }
}
