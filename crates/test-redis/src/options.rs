//! What a test may ask of its server.

/// What a server should be besides empty, on loopback and without persistence.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) password: Option<String>,
    pub(crate) has_tls: bool,
    pub(crate) users: Vec<User>,
    pub(crate) lines: Vec<String>,
}

/// A user beside the default one.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
    pub(crate) rules: String,
}

impl Options {
    /// The default user has this password; without it nobody is asked for one.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// The server's URL speaks TLS, with a certificate for `localhost` and `127.0.0.1` that only
    /// [`RedisServer::ca_certificate`](crate::RedisServer::ca_certificate) vouches for.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// There is another user with these rules, for example `~* &* +@all -script|load`.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.users.push(User {
            name: name.to_owned(),
            password: password.to_owned(),
            rules: rules.to_owned(),
        });
        self
    }

    /// A line of `redis.conf`, which has the last word.
    #[must_use]
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }
}
