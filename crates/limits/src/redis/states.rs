//! What the scripts say of counters, as the counters that this crate decides by: both stores answer through the same
//! code.

use domain::limits::{Dimension, Limit};
use domain::periods::Span;
use redis::Value;

use super::asked::Asked;
use crate::bucket::Bucket;
use crate::budget::Budget;
use crate::counter::Kind;
use crate::members::Members;
use crate::node::Node;
use crate::told::Told;
use crate::window::{RING, Window};
use crate::{Now, ScopeLimits};

/// A reply that no script gives.
#[derive(Debug)]
pub(crate) struct Unexpected;

/// The counters of one scope, from the next states of a reply.
pub(crate) fn node(
    of: &ScopeLimits,
    asked: &[Asked],
    limits: &[usize],
    states: &mut impl Iterator<Item = Value>,
    span: impl Fn(&Limit) -> Span,
    now: Now,
) -> Result<Node, Unexpected> {
    let mut node = Node::default();
    for (counter, &limit) in asked.iter().zip(limits) {
        let limit = &of.limits[limit];
        let state = states.next().ok_or(Unexpected)?;
        let (state, told) = match counter.may_be_told() {
            true => with_told(limit, state)?,
            false => (state, None),
        };
        node.add(limit, kind(limit, &state, counter.unit(), &span, now)?, told, now);
    }
    Ok(node)
}

/// A state, and the provider's word beside it.
fn with_told(limit: &Limit, state: Value) -> Result<(Value, Option<Told>), Unexpected> {
    let Value::Array(mut both) = state else {
        return Err(Unexpected);
    };
    let told = both.pop().ok_or(Unexpected)?;
    let told = numbers(&told)?.map(|told| match told[..] {
        [left, told_ms, until_ms, per_window] => Ok(Told::counted(
            limit.window_seconds,
            left,
            (told_ms.unsigned_abs(), until_ms.unsigned_abs()),
            per_window.unsigned_abs(),
        )),
        _ => Err(Unexpected),
    });
    Ok((both.pop().ok_or(Unexpected)?, told.transpose()?))
}

fn kind(limit: &Limit, state: &Value, unit: u64, span: &impl Fn(&Limit) -> Span, now: Now) -> Result<Kind, Unexpected> {
    Ok(match limit.dimension {
        Dimension::Requests => match numbers(state)? {
            None => Kind::Requests(Window::new(limit.window_seconds, now.monotonic_ms)),
            Some(numbers) => Kind::Requests(window(limit.window_seconds, &numbers)?),
        },
        Dimension::InputTokens | Dimension::OutputTokens | Dimension::TotalTokens => match numbers(state)? {
            None => Kind::Tokens {
                bucket: Bucket::full(
                    limit.window_seconds,
                    limit.value,
                    limit.burst_tokens(),
                    now.monotonic_ms,
                ),
                window: Window::new(limit.window_seconds, now.monotonic_ms),
            },
            Some(numbers) => {
                let [whole, rest, refilled_ms, value, burst] = *numbers.first_chunk().ok_or(Unexpected)?;
                Kind::Tokens {
                    bucket: Bucket::counted(
                        limit.window_seconds,
                        (whole, rest),
                        (value.unsigned_abs(), burst.unsigned_abs()),
                        refilled_ms.unsigned_abs(),
                    ),
                    window: window(limit.window_seconds, &numbers[5..])?,
                }
            }
        },
        Dimension::Concurrency => {
            let Value::Int(count) = state else {
                return Err(Unexpected);
            };
            Kind::Concurrency(Members::counted(u64::try_from(*count).unwrap_or(0)))
        }
        Dimension::BudgetTokens | Dimension::BudgetCost => {
            let Value::Array(fields) = state else {
                return Err(Unexpected);
            };
            let unit = unit.cast_signed();
            let [base, since, held, aside] = &fields[..] else {
                return Err(Unexpected);
            };
            let base = match base {
                Value::Nil => None,
                base => Some(integer(base)?.saturating_mul(unit)),
            };
            let counted = |value| integer(value).map(|sum| u64::try_from(sum.saturating_mul(unit)).unwrap_or(0));
            let (since, held, aside) = (counted(since)?, counted(held)?, counted(aside)?);
            Kind::Budget(Box::new(Budget::counted(span(limit), base, since, held, aside)))
        }
        Dimension::RequestInputTokens | Dimension::RequestOutputTokens | Dimension::RequestSeconds => {
            return Err(Unexpected);
        }
    })
}

fn window(window_seconds: u32, numbers: &[i64]) -> Result<Window, Unexpected> {
    let (newest, cells) = numbers.split_first().ok_or(Unexpected)?;
    let cells: &[i64; RING as usize] = cells.try_into().map_err(|_| Unexpected)?;
    Ok(Window::counted(
        window_seconds,
        newest.unsigned_abs(),
        cells.map(i64::unsigned_abs),
    ))
}

fn integer(value: &Value) -> Result<i64, Unexpected> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(Unexpected),
    }
}

/// Doubles that are integers, one after the other; `None` where there is no counter yet.
fn numbers(state: &Value) -> Result<Option<Vec<i64>>, Unexpected> {
    match state {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) if bytes.len() % 8 == 0 => Ok(Some(
            bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| f64::from_le_bytes(*bytes) as i64)
                .collect(),
        )),
        _ => Err(Unexpected),
    }
}
