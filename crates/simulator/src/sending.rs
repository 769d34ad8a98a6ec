//! A stream on its way, and all that can go wrong with it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::connection::ResetSwitch;
use crate::dialect::{Dialect, Exchange};
use crate::failure::Failure;
use crate::flight::Flight;
use crate::serve::failure_text;

/// The longest wait that can be ordered, in milliseconds.
const PAUSE_MS_MAX: u64 = 600_000;

/// What was generated for one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) tokens: u64,
    /// The part of them that is reasoning.
    pub(crate) reasoning_tokens: u64,
    /// Whether it counts for the orders that say "after so many chunks": it carries generated words.
    is_chunk: bool,
}

impl Load {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        tokens: 0,
        reasoning_tokens: 0,
        is_chunk: false,
    };
    /// A word that is said.
    pub(crate) const WORD: Self = Self::words(1);
    /// A word of reasoning that is shown.
    pub(crate) const THOUGHT: Self = Self {
        tokens: 1,
        reasoning_tokens: 1,
        is_chunk: true,
    };

    /// A piece that stands for so many words.
    pub(crate) const fn words(tokens: u64) -> Self {
        Self {
            tokens,
            reasoning_tokens: 0,
            is_chunk: true,
        }
    }

    /// Thinking that is not shown costs all the same; it goes with an event that shows nothing.
    pub(crate) const fn hidden(tokens: u64) -> Self {
        Self {
            tokens,
            reasoning_tokens: tokens,
            is_chunk: false,
        }
    }
}

/// One event of the stream and what it stands for.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) data: Bytes,
    pub(crate) load: Load,
}

impl Piece {
    /// An event that stands for nothing generated.
    pub(crate) fn bare(data: Bytes) -> Self {
        Self { data, load: Load::NONE }
    }
}

/// Dropped in between, its flight counts as aborted.
pub(crate) struct Sending<D> {
    flight: Flight,
    switch: ResetSwitch,
    exchange: Exchange,
    pieces: VecDeque<Piece>,
    /// Whether the input is counted; it is with the first byte.
    is_input_counted: bool,
    chunks: u64,
    events: u64,
    is_over: bool,
    is_held: bool,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> Sending<D> {
    /// The body of the answer, sent as it is read.
    pub(crate) fn body(
        flight: Flight,
        switch: ResetSwitch,
        exchange: Exchange,
    ) -> BoxStream<'static, io::Result<Bytes>> {
        let sending = Self {
            flight,
            switch,
            pieces: D::pieces(&exchange).into(),
            exchange,
            is_input_counted: false,
            chunks: 0,
            events: 0,
            is_over: false,
            is_held: false,
            dialect: PhantomData,
        };
        stream::unfold(sending, Self::next).boxed()
    }

    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        let behaviour = &self.exchange.behaviour;
        let chunk_ms = behaviour.chunk_ms;
        let reached = |after: Option<u64>| after.is_some_and(|after| self.chunks >= after);
        if reached(behaviour.reset_after_chunks) {
            // Pending once, so that what was sent before is flushed.
            tokio::task::yield_now().await;
            self.switch.reset();
            return Some((Err(io::ErrorKind::ConnectionReset.into()), self));
        }
        if reached(behaviour.silence_after_chunks) {
            std::future::pending::<Infallible>().await;
        }
        if reached(behaviour.close_after_chunks) {
            self.flight.set_finished();
            return None;
        }
        if reached(behaviour.error_after_chunks) {
            self.flight.set_finished();
            self.is_over = true;
            let failure = Failure::ordered(500, failure_text(behaviour, &self.flight.shared));
            let error = D::broken(&self.exchange, &failure, self.events);
            return Some((Ok(error), self));
        }
        if reached(behaviour.hold_after_chunks) && !self.is_held {
            self.is_held = true;
            self.flight.park().await;
        }
        let piece = self.pieces.pop_front()?;
        pause(chunk_ms).await;
        let is_first = !std::mem::replace(&mut self.is_input_counted, true);
        let usage = &self.exchange.answer.usage;
        self.flight.shared.counters.change(|stats| {
            if is_first {
                stats.add_input(usage);
            }
            stats.completion_tokens_sent += piece.load.tokens;
            stats.reasoning_tokens_sent += piece.load.reasoning_tokens;
        });
        self.chunks += u64::from(piece.load.is_chunk);
        self.events += 1;
        if self.pieces.is_empty() {
            self.flight.set_finished();
        }
        Some((Ok(piece.data), self))
    }
}

/// Waits as ordered, [`PAUSE_MS_MAX`] at most.
pub(crate) async fn pause(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis.min(PAUSE_MS_MAX))).await;
    }
}
