//! The connection to one server, kept open by a task of its own and shared by all calls.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::access::Access;
use super::error::{CallError, ConnectError};
use super::outage::Outage;
use super::settings::Address;

/// Pauses between attempts to connect double from the first to the last of these.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A connection that lasted this long is replaced without a pause, and calls wait for that.
const STEADY: Duration = Duration::from_secs(1);
/// After this many calls without an answer, each begun when the one before was given up, the connection is replaced. A
/// server that vanished without a word would otherwise be waited for until the system gives up, a quarter of an hour.
const UNANSWERED_MAX: u32 = 3;

/// A server. Clones share the connection, which ends with the last of them.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
}

struct Shared {
    address: Address,
    access: Arc<Access>,
    state: watch::Sender<State>,
}

#[derive(Clone)]
enum State {
    /// Calls wait, within their time-out: this is about to be one of the others.
    Connecting,
    /// Calls go out.
    Up(Arc<Live>),
    /// Calls fail at once, while attempts go on in the background.
    Down(Arc<ConnectError>),
}

/// The task that connects, begun by the first call.
#[derive(Default)]
struct Keeper(OnceLock<AbortHandle>);

struct Live {
    connection: MultiplexedConnection,
    unanswered: Mutex<Unanswered>,
    /// Tells the keeper that this connection is of no use.
    give_up: Mutex<Option<oneshot::Sender<Arc<ConnectError>>>>,
}

struct Unanswered {
    count: u32,
    counted_at: Instant,
}

impl Link {
    pub(super) fn new(address: Address, access: Arc<Access>) -> Self {
        let (state, _) = watch::channel(State::Connecting);
        Self {
            shared: Arc::new(Shared { address, access, state }),
            keeper: Arc::default(),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Whether a call would go out now.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), State::Up(_))
    }

    /// Sends a command and waits for its answer until the deadline.
    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, CallError> {
        self.exchange(deadline, async |connection| {
            connection.send_packed_command(command).await
        })
        .await
    }

    /// The same for a node that is being given the slot and takes only those who ask.
    pub(super) async fn send_asking(&self, command: &Cmd, deadline: Instant) -> Result<Value, CallError> {
        let mut asking = Pipeline::new();
        asking.cmd("ASKING").ignore().add_command(command.clone());
        self.exchange(deadline, async |connection| {
            let mut answers = connection.send_packed_commands(&asking, 0, 2).await?;
            Ok(answers.pop().unwrap_or(Value::Nil))
        })
        .await
    }

    async fn exchange(
        &self,
        deadline: Instant,
        send: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<Value>,
    ) -> Result<Value, CallError> {
        let live = self.live(deadline).await?;
        let began_at = Instant::now();
        let mut connection = live.connection.clone();
        let Ok(answer) = timeout_at(deadline, send(&mut connection)).await else {
            if live.counts_unanswered(began_at) {
                self.give_up(&live, ConnectError::Silent(UNANSWERED_MAX));
            }
            return Err(CallError::TimedOut {
                address: self.address().clone(),
            });
        };
        let answer = answer
            .and_then(Value::extract_error)
            .map_err(|error| CallError::from_exchange(&error, self.address()));
        if !matches!(answer, Err(CallError::Broken { .. })) {
            live.unanswered.lock().count = 0;
        }
        if let Err(CallError::Refused { answer }) = &answer
            && is_of_no_use(answer)
        {
            self.give_up(&live, ConnectError::Disowned(answer.clone()));
        }
        answer
    }

    async fn live(&self, deadline: Instant) -> Result<Arc<Live>, CallError> {
        self.keeper
            .0
            .get_or_init(|| tokio::spawn(keep(self.shared.clone())).abort_handle());
        let mut state = self.shared.state.borrow().clone();
        if matches!(state, State::Connecting) {
            let mut changes = self.shared.state.subscribe();
            let settled = timeout_at(deadline, changes.wait_for(|state| !matches!(state, State::Connecting)));
            if let Ok(Ok(settled)) = settled.await {
                state = settled.clone();
            }
        }
        let source = match state {
            State::Up(live) => return Ok(live),
            State::Down(error) => error,
            State::Connecting => Arc::new(ConnectError::Slow(self.shared.access.command_timeout.as_millis())),
        };
        Err(CallError::Unreachable {
            address: self.address().clone(),
            source,
        })
    }

    /// Has the keeper replace this connection, unless it is doing so already. No call uses it from here on.
    fn give_up(&self, live: &Arc<Live>, reason: ConnectError) {
        let Some(keeper) = live.give_up.lock().take() else {
            return;
        };
        let reason = Arc::new(reason);
        self.shared.state.send_if_modified(|state| {
            let is_this = matches!(state, State::Up(current) if Arc::ptr_eq(current, live));
            if is_this {
                *state = State::after(&reason);
            }
            is_this
        });
        // It may have ended with its runtime.
        let _ = keeper.send(reason);
    }
}

impl State {
    /// Of a server that was connected a moment ago and that the keeper turns to now. Nobody has to be refused for a
    /// connection that is back in a moment; but a silent server will be silent.
    fn after(reason: &Arc<ConnectError>) -> Self {
        match **reason {
            ConnectError::Silent(_) => Self::Down(reason.clone()),
            _ => Self::Connecting,
        }
    }
}

impl Live {
    /// Counts a call that was given up; true when it is one too many.
    fn counts_unanswered(&self, began_at: Instant) -> bool {
        let mut unanswered = self.unanswered.lock();
        // Calls side by side are one silence.
        if began_at >= unanswered.counted_at {
            unanswered.count += 1;
            unanswered.counted_at = Instant::now();
        }
        unanswered.count >= UNANSWERED_MAX
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

/// Keeps a connection open until it is aborted.
async fn keep(shared: Arc<Shared>) {
    let mut pause = Duration::ZERO;
    let mut outage = Outage::default();
    loop {
        let down = match shared.access.connect(&shared.address).await {
            Ok((connection, carrier)) => {
                outage.is_over(&shared.address);
                let began_at = Instant::now();
                let (give_up, given_up) = oneshot::channel();
                shared.state.send_replace(State::Up(Arc::new(Live {
                    connection,
                    unanswered: Mutex::new(Unanswered {
                        count: 0,
                        counted_at: began_at,
                    }),
                    give_up: Mutex::new(Some(give_up)),
                })));
                let reason = tokio::select! {
                    () = carrier => Arc::new(ConnectError::Broken),
                    Ok(reason) = given_up => reason,
                };
                if began_at.elapsed() >= STEADY {
                    pause = Duration::ZERO;
                }
                reason
            }
            Err(error) => {
                pause = pause.max(PAUSE_MIN);
                Arc::new(error)
            }
        };
        let state = if pause.is_zero() {
            State::after(&down)
        } else {
            State::Down(down)
        };
        if let State::Down(down) = &state {
            outage.goes_on(&shared.address, down);
        }
        shared.state.send_replace(state);
        sleep(pause).await;
        pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
    }
}

/// Whether an answer means that another connection may fare better.
fn is_of_no_use(answer: &str) -> bool {
    let code = answer.split(' ').next().unwrap_or_default();
    matches!(code, "READONLY" | "NOAUTH")
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.shared.state.borrow() {
            State::Connecting => "connecting",
            State::Up(_) => "up",
            State::Down(_) => "down",
        };
        write!(formatter, "Link({} {state})", self.address())
    }
}
