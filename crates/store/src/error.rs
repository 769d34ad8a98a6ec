//! What can go wrong with Postgres, as far as a caller can act on it.

use sqlx::migrate::MigrateError;

/// Why an operation on the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database URL cannot be used.
    #[error("the database URL is not valid; it looks like postgres://user:password@host:5432/name")]
    Url(#[source] sqlx::Error),
    /// Postgres cannot be reached, or no connection was free in time.
    #[error("Postgres cannot be reached")]
    Unavailable(#[source] sqlx::Error),
    /// A named constraint was violated.
    #[error("the change breaks a rule of the database ({constraint})")]
    Constraint {
        /// The constraint's or unique index's name.
        constraint: String,
        /// What Postgres said.
        #[source]
        source: sqlx::Error,
    },
    /// Deadlock or serialisation failure: the same transaction may succeed when repeated.
    #[error("another transaction was in the way")]
    Conflict(#[source] sqlx::Error),
    /// The statement took longer than it may, and was given up.
    #[error("a database query took too long")]
    TooSlow(#[source] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("the database schema could not be brought up to date")]
    Migration(#[source] MigrateError),
    /// A stored value is none that this version knows.
    #[error("the database holds a value that this version does not understand ({column})")]
    Value {
        /// Where it was found.
        column: &'static str,
    },
    /// Anything else.
    #[error("a database query failed")]
    Query(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether waiting and repeating may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Conflict(_))
    }

    /// Whether Postgres refused the values themselves, so that the same statement will never succeed. A missing table, a
    /// time-out or a read-only server is not that.
    pub fn is_content(&self) -> bool {
        let source = match self {
            Self::Constraint { source, .. } | Self::Query(source) => source,
            _ => return false,
        };
        // Data exceptions, integrity violations, program limits exceeded (a value too long for its index).
        let code = source.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
    }

    /// Whether another transaction was in the way of a change of tables: a deadlock, a serialisation failure, a lock that was
    /// not had in time, or a table that somebody else has just made, detached or dropped.
    pub fn is_in_the_way(&self) -> bool {
        match self {
            Self::Conflict(_) => true,
            Self::Query(error) => {
                let code = error.as_database_error().and_then(|error| error.code());
                code.is_some_and(|code| matches!(&*code, "55P03" | "42P01" | "42P07"))
            }
            _ => false,
        }
    }

    /// The name of the violated constraint, if that is what happened.
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Constraint { constraint, .. } => Some(constraint),
            _ => None,
        }
    }
}

impl From<MigrateError> for StoreError {
    /// A connection that broke in the middle of it, or another process in the way, is no fault of the schema.
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(beneath) | MigrateError::ExecuteMigration(beneath, _) if is_transient(&beneath) => {
                Self::from(beneath)
            }
            error => Self::Migration(error),
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if let sqlx::Error::Database(database) = &error
            && let Some(constraint) = database.constraint()
        {
            return Self::Constraint {
                constraint: constraint.to_owned(),
                source: error,
            };
        }
        if is_conflict(&error) {
            Self::Conflict(error)
        } else if is_unavailable(&error) {
            Self::Unavailable(error)
        } else if is_time_out(&error) {
            Self::TooSlow(error)
        } else {
            Self::Query(error)
        }
    }
}

fn is_transient(error: &sqlx::Error) -> bool {
    is_conflict(error) || is_unavailable(error)
}

fn is_conflict(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "40001" | "40P01"))
}

/// The statement's time is over, or somebody cancelled it.
fn is_time_out(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "57014")
}

fn is_unavailable(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    match error {
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => true,
        // Connection failures, shutdown, start-up, too many connections, disk and memory exhaustion, and a transaction
        // or a session that the server ended for standing idle.
        E::Database(error) => error
            .code()
            .is_some_and(|code| ["08", "57P", "53", "25P03"].iter().any(|class| code.starts_with(class))),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
