//! What is sent: commands and scripts, with keys and arguments as bytes.

use redis::{Cmd, RedisWrite, ToRedisArgs};

/// A Lua script and its digest, by which servers know it. Made once.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    sha1: String,
}

/// An argument. Numbers are written in decimal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    /// As it is.
    Bytes(&'a [u8]),
    /// A number that may be negative.
    Signed(i64),
    /// A number that may be large.
    Unsigned(u64),
}

/// The longest decimal number, which is what room is made for.
const NUMBER_BYTES_MAX: usize = 20;
/// The command's name, the script and the number of keys come before the keys.
const WORDS_BEFORE_KEYS: usize = 3;

impl Script {
    /// A script with this text.
    pub(crate) fn new(source: &'static str) -> Self {
        let sha1 = redis::Script::new(source).get_hash().to_owned();
        Self { source, sha1 }
    }

    pub(super) fn by_digest<K: AsRef<[u8]>>(&self, keys: &[K], args: &[Arg<'_>]) -> Cmd {
        invocation("EVALSHA", &self.sha1, keys, args)
    }

    pub(super) fn by_text<K: AsRef<[u8]>>(&self, keys: &[K], args: &[Arg<'_>]) -> Cmd {
        invocation("EVAL", self.source, keys, args)
    }
}

/// The command `name`, `key`, `args`.
pub(super) fn command(name: &str, key: Option<&[u8]>, args: &[Arg<'_>]) -> Cmd {
    let bytes = name.len() + key.map_or(0, <[u8]>::len) + bytes_of(args);
    let mut command = Cmd::with_capacity(2 + args.len(), bytes);
    command.arg(name).arg(key).arg(args);
    command
}

fn invocation<K: AsRef<[u8]>>(name: &str, script: &str, keys: &[K], args: &[Arg<'_>]) -> Cmd {
    let key_bytes: usize = keys.iter().map(|key| key.as_ref().len()).sum();
    let mut command = Cmd::with_capacity(
        WORDS_BEFORE_KEYS + keys.len() + args.len(),
        name.len() + script.len() + NUMBER_BYTES_MAX + key_bytes + bytes_of(args),
    );
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_ref());
    }
    command.arg(args);
    command
}

fn bytes_of(args: &[Arg<'_>]) -> usize {
    args.iter()
        .map(|arg| match arg {
            Arg::Bytes(bytes) => bytes.len(),
            Arg::Signed(_) | Arg::Unsigned(_) => NUMBER_BYTES_MAX,
        })
        .sum()
}

impl ToRedisArgs for Arg<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self {
            Self::Bytes(bytes) => out.write_arg(bytes),
            Self::Signed(number) => number.write_redis_args(out),
            Self::Unsigned(number) => number.write_redis_args(out),
        }
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<u64> for Arg<'_> {
    fn from(number: u64) -> Self {
        Self::Unsigned(number)
    }
}
