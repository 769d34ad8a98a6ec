//! The wire formats that are spoken. A dialect reads a request into what all have in common, and writes the common answer;
//! everything between is the same for all of them. To add one, implement [`Dialect`] and give it a path in `lib.rs`.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod messages;
mod openai;
pub(crate) mod responses;

use bytes::Bytes;
use serde_json::Value;

use crate::answer::Answer;
use crate::asked::Asked;
use crate::behaviour::Behaviour;
use crate::failure::Failure;
use crate::provider::Provider;
use crate::sending::Piece;

/// What was asked, what is answered, and how.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) asked: Asked,
    pub(crate) answer: Answer,
    pub(crate) behaviour: Behaviour,
}

/// One wire format of one path.
pub(crate) trait Dialect: Send + 'static {
    /// Whose it is.
    const PROVIDER: Provider;

    /// Reads the body of a request.
    ///
    /// # Errors
    /// When the provider would refuse it.
    fn read(body: Value) -> Result<Asked, Failure>;

    /// The answer in one piece.
    fn whole(exchange: &Exchange) -> Value;

    /// Every event of the answer as a stream; there are none where nothing is streamed.
    fn pieces(_exchange: &Exchange) -> Vec<Piece> {
        Vec::new()
    }

    /// The event that says that a stream of which `sent` events went out has failed.
    fn broken(_exchange: &Exchange, failure: &Failure, _sent: u64) -> Bytes {
        event(&Self::PROVIDER.error(failure, None))
    }
}

/// An event that says what it is only in its data.
fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// An event that is named by the `type` of its data.
fn named_event(data: &Value) -> Bytes {
    let name = data["type"].as_str().unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
