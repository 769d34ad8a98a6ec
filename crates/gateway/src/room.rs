//! Memory for bodies and buffered answers: one bound for all of them together.
//!
//! Each has a bound of its own, but a thousand of them at once have none. Room is taken as bytes arrive, so that a caller
//! who announces much and sends little takes little, and nobody waits for it: whoever waited would keep what it has.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of callers' bodies and providers' whole answers that are in memory at once.
pub(crate) const BUFFERED_BYTES_MAX: usize = 512 * 1024 * 1024;

/// All the room there is.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Semaphore>);

/// Room taken; given back when dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Room,
    permit: Option<OwnedSemaphorePermit>,
}

/// All the room is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Default for Room {
    fn default() -> Self {
        Self::of(BUFFERED_BYTES_MAX)
    }
}

impl Room {
    fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// Takes nothing yet.
    pub(crate) fn take_none(&self) -> Taken {
        Taken {
            room: self.clone(),
            permit: None,
        }
    }
}

impl Taken {
    /// Takes so many bytes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let bytes = u32::try_from(bytes).map_err(|_| NoRoom)?;
        let more = Arc::clone(&self.room.0)
            .try_acquire_many_owned(bytes)
            .map_err(|_| NoRoom)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }

    /// Gives back what it has, and takes nothing yet.
    pub(crate) fn none_of_it(&self) -> Self {
        self.room.take_none()
    }

    /// The same bytes, keeping the room for as long as any part of them lives.
    pub(crate) fn guard(self, bytes: Bytes) -> Bytes {
        struct Guarded {
            bytes: Bytes,
            _room: Taken,
        }
        impl AsRef<[u8]> for Guarded {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }
        Bytes::from_owner(Guarded { bytes, _room: self })
    }
}

#[cfg(test)]
mod tests;
