//! Passwords: what makes a good one, and argon2id hashing with a bound on how many are hashed at once.

use std::sync::Arc;
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use domain::text;
use store::random::{self, Random};
use tokio::sync::Semaphore;

use crate::ControlError;
use crate::fields::Fields;

/// The shortest password, in characters.
pub(crate) const PASSWORD_CHARS_MIN: usize = 12;
/// The longest password, in characters.
pub(crate) const PASSWORD_CHARS_MAX: usize = 256;
/// Passwords hashed at once; each takes 19 MiB and some tens of milliseconds of one core.
const HASHES_AT_ONCE_MAX: usize = 4;
/// How long a password waits for its turn.
const HASH_WAIT_MAX: Duration = Duration::from_secs(5);
const SALT_BYTES: usize = 16;
/// Spends the time of a check on an account that does not exist.
const SALT_OF_NOBODY: [u8; SALT_BYTES] = *b"nobody's account";

/// Hashes and checks passwords.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    turns: Arc<Semaphore>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(HASHES_AT_ONCE_MAX)),
        }
    }
}

impl Passwords {
    /// The hash of a password in PHC format.
    pub(crate) async fn hash(&self, password: &str, random: &dyn Random) -> Result<String, ControlError> {
        let password = password.to_owned();
        let salt: [u8; SALT_BYTES] = random::bytes(random);
        self.take_turn(move || {
            let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt)?;
            Ok(hash.to_string())
        })
        .await
    }

    /// Whether the password is the one that was hashed. Without a hash it takes as long and is not.
    pub(crate) async fn verify(&self, password: &str, hash: Option<String>) -> Result<bool, ControlError> {
        let password = password.to_owned();
        self.take_turn(move || {
            let argon2 = Argon2::default();
            let Some(hash) = hash else {
                argon2.hash_password_with_salt(password.as_bytes(), &SALT_OF_NOBODY)?;
                return Ok(false);
            };
            let hash = PasswordHash::new(&hash)?;
            Ok(argon2.verify_password(password.as_bytes(), &hash).is_ok())
        })
        .await
    }

    async fn take_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, argon2::password_hash::Error> + Send + 'static,
    ) -> Result<T, ControlError> {
        let turn = tokio::time::timeout(HASH_WAIT_MAX, self.turns.clone().acquire_owned())
            .await
            .map_err(|_| ControlError::Busy)?
            .map_err(|closed| ControlError::Internal(Box::new(closed)))?;
        tokio::task::spawn_blocking(move || {
            // Given back when the work is done, even if nobody waits for it any more.
            let _turn = turn;
            work()
        })
        .await
        .map_err(|panicked| ControlError::Internal(Box::new(panicked)))?
        .map_err(|error| ControlError::Internal(Box::new(error)))
    }
}

/// Notes what is wrong with a new password.
pub(crate) fn check_new(fields: &mut Fields, password: &str, email: &str) {
    let characters = password.chars().count();
    if characters < PASSWORD_CHARS_MIN {
        fields.refuse(
            "password",
            text!("at least {count} characters", count = PASSWORD_CHARS_MIN),
        );
    } else if characters > PASSWORD_CHARS_MAX {
        fields.refuse(
            "password",
            text!("at most {count} characters", count = PASSWORD_CHARS_MAX),
        );
    } else if password.eq_ignore_ascii_case(email.trim()) {
        fields.refuse("password", text!("choose something else than your address"));
    } else if password.chars().all(|character| password.starts_with(character)) {
        fields.refuse("password", text!("choose something else than one character repeated"));
    }
}

#[cfg(test)]
mod tests;
