//! Sessions of the console, kept in Postgres.

use std::sync::Arc;

pub use store::sessions::{PERSON_FIELD, Sessions};

use crate::Control;

impl Control {
    /// The store of sessions. A session whose data names its person under [`PERSON_FIELD`] ends with that person.
    pub fn sessions(&self) -> Sessions {
        Sessions::new(self.store.clone(), self.secret_key.clone(), Arc::clone(&self.random))
    }
}
