//! Which node of a cluster has which keys.

use redis::Value;

use super::settings::Address;

#[cfg(test)]
mod tests;

/// Slots of every cluster.
pub(super) const SLOTS: u16 = 16_384;

/// A run of slots and the node that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Address,
}

/// The slot of a key: that of what stands between the first `{` and the next `}`, if anything, else of all of it.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// CRC-16/XMODEM, bit by bit: tags are short.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ POLYNOMIAL
            }
        })
    })
}

/// Reads the answer to `CLUSTER SLOTS` of the node at `asked`, which does not name itself where it does not know its name.
/// `None` if it is something else, or empty.
pub(super) fn ranges(answer: Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(rows) = answer else { return None };
    let mut ranges = rows
        .into_iter()
        .map(|row| range(row, asked))
        .collect::<Option<Vec<Range>>>()?;
    ranges.sort_by_key(|range| range.first);
    (!ranges.is_empty()).then_some(ranges)
}

/// First slot, last slot, the primary and then its replicas, which are not asked.
fn range(row: Value, asked: &Address) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let mut row = row.into_iter();
    let first = number(row.next()?)?;
    let last = number(row.next()?)?;
    let Value::Array(primary) = row.next()? else {
        return None;
    };
    let mut primary = primary.into_iter();
    let host = match primary.next()? {
        Value::Nil => String::new(),
        host => redis::from_redis_value(host).ok()?,
    };
    let port = number(primary.next()?)?;
    Some(Range {
        first,
        last,
        owner: address(&host, port, asked),
    })
}

fn number(value: Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(number).ok(),
        _ => None,
    }
}

/// Where `MOVED slot host:port` or `ASK slot host:port` points to.
pub(super) fn redirection(answer: &str, asked: &Address) -> Option<(Redirection, Address)> {
    let mut words = answer.split(' ');
    let redirection = match words.next()? {
        "MOVED" => Redirection::Moved,
        "ASK" => Redirection::Ask,
        _ => return None,
    };
    let (host, port) = words.nth(1)?.rsplit_once(':')?;
    Some((redirection, address(host, port.parse().ok()?, asked)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot belongs to that node.
    Moved,
    /// The slot is on its way there; this call only.
    Ask,
}

/// A node that does not know its name is where it was asked.
fn address(host: &str, port: u16, asked: &Address) -> Address {
    let host = match host {
        "" | "?" => &asked.host,
        host => host,
    };
    Address {
        host: host.to_owned(),
        port,
    }
}
