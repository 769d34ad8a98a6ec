//! Typed ids: a tenant's id cannot be passed where a key's is meant.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::text;
use crate::text::Text;

impl From<&uuid::Error> for Text {
    fn from(_: &uuid::Error) -> Self {
        text!("this is no id; choose from the list")
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A version 7 UUID (RFC 9562) from the caller's clock and ten random bytes: sorts by time of creation.
            pub fn new(at: DateTime<Utc>, random: [u8; 10]) -> Self {
                Self(uuid_v7(at, random))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::from_str(text).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

id!(
    /// An organisation or team.
    TenantId
);
id!(
    /// A named set of limits given to tenants.
    PlanId
);
id!(
    /// Somebody who signs in.
    PersonId
);
id!(
    /// An API key; stays the same when its secret is rotated.
    KeyId
);
id!(
    /// A provider endpoint.
    UpstreamId
);
id!(
    /// One proxied request, and the hold it takes.
    RequestId
);
id!(
    /// One asynchronous job.
    JobId
);
id!(
    /// One configured limit.
    LimitId
);
id!(
    /// One price row of a model.
    PriceId
);
id!(
    /// One signed correction in the ledger.
    AdjustmentId
);

id!(
    /// One token of the management API.
    ManagementTokenId
);

id!(
    /// One session of a person at the console, as pages name it. What the browser holds is another secret.
    SessionId
);

fn uuid_v7(at: DateTime<Utc>, random: [u8; 10]) -> Uuid {
    let millis = u64::try_from(at.timestamp_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}
