//! The calls of providers' APIs that are served: everything else is closed, because it could not be metered.

use std::fmt;

use domain::policy::Dialect;

/// One call of a provider's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// OpenAI's `POST /v1/chat/completions`.
    ChatCompletions,
    /// OpenAI's `POST /v1/completions`.
    Completions,
    /// OpenAI's `POST /v1/responses`.
    Responses,
    /// OpenAI's `POST /v1/embeddings`.
    Embeddings,
    /// Anthropic's `POST /v1/messages`.
    Messages,
    /// Anthropic's `POST /v1/messages/count_tokens`.
    CountTokens,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Responses,
        Self::Embeddings,
        Self::Messages,
        Self::CountTokens,
    ];

    /// The path below the version, here and at the provider.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat/completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
            Self::CountTokens => "messages/count_tokens",
        }
    }

    /// The endpoint under `path`.
    pub fn find(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|endpoint| endpoint.path() == path)
    }

    /// Who speaks so.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::ChatCompletions | Self::Completions | Self::Responses | Self::Embeddings => Dialect::Openai,
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
        }
    }

    /// Whether providers take nothing for it: it counts as a request, and uses no tokens.
    pub fn is_free(self) -> bool {
        self == Self::CountTokens
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}
