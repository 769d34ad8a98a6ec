//! The nodes of a cluster, each with a connection of its own, and the map of their slots.
//!
//! A node that is out of reach costs its own slots and nothing else: redis-rs's cluster connection would hold up every
//! call while it looks for the slots anew, send a call again whose connection broke, and never notice a node that went
//! silent.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::access::Access;
use super::error::{CallError, ConnectError};
use super::link::Link;
use super::refresh;
use super::request;
use super::settings::Address;
use super::slots::{self, Range, Redirection};

/// A call follows this many nodes that name another.
const REDIRECTIONS_MAX: u32 = 3;

/// A cluster. Clones share its connections, which end with the last of them.
#[derive(Clone)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    mapper: Arc<Mapper>,
}

pub(super) struct Shared {
    /// The nodes that the settings name.
    pub(super) seeds: Vec<Address>,
    pub(super) access: Arc<Access>,
    /// Connections to nodes, begun when first used.
    links: Mutex<HashMap<Address, Link>>,
    pub(super) map: watch::Sender<Map>,
    /// Something showed that the map may be old.
    pub(super) doubt: Notify,
}

#[derive(Clone)]
pub(super) enum Map {
    /// Calls wait, within their time-out.
    Unread,
    /// Kept until a newer one is there.
    Known(Arc<Vec<Range>>),
    /// Calls fail at once, while attempts go on in the background.
    Unreadable(Address, Arc<ConnectError>),
}

/// The task that reads the map, begun by the first call.
#[derive(Default)]
struct Mapper(OnceLock<AbortHandle>);

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, access: Arc<Access>) -> Self {
        let (map, _) = watch::channel(Map::Unread);
        Self {
            shared: Arc::new(Shared {
                seeds,
                access,
                links: Mutex::default(),
                map,
                doubt: Notify::new(),
            }),
            mapper: Arc::default(),
        }
    }

    /// Sends a command to the node that has the key, or to any.
    pub(super) async fn send(&self, key: Option<&[u8]>, command: &Cmd, deadline: Instant) -> Result<Value, CallError> {
        let ranges = self.ranges(deadline).await?;
        let mut link = match key {
            Some(key) => self.owner(&ranges, slots::slot_of(key))?,
            None => self.any(&ranges),
        };
        let mut answer = link.send(command, deadline).await;
        for _ in 0..REDIRECTIONS_MAX {
            let Some((redirection, next)) = redirected(&answer, link.address()) else {
                break;
            };
            link = self.shared.link(&next);
            answer = match redirection {
                Redirection::Moved => {
                    self.shared.doubt.notify_one();
                    link.send(command, deadline).await
                }
                Redirection::Ask => link.send_asking(command, deadline).await,
            };
        }
        if answer.as_ref().is_err_and(casts_doubt) {
            self.shared.doubt.notify_one();
        }
        answer
    }

    /// Every node that has slots.
    pub(super) async fn primaries(&self, deadline: Instant) -> Result<Vec<Link>, CallError> {
        let ranges = self.ranges(deadline).await?;
        let mut owners: Vec<&Address> = ranges.iter().map(|range| &range.owner).collect();
        owners.sort_by(|left, right| (&left.host, left.port).cmp(&(&right.host, right.port)));
        owners.dedup();
        Ok(owners.into_iter().map(|owner| self.shared.link(owner)).collect())
    }

    /// Waits until every node that has slots has answered something.
    pub(super) async fn reach_all(&self, deadline: Instant) -> Result<(), CallError> {
        let ping = request::command("PING", None, &[]);
        let links = self.primaries(deadline).await?;
        let answers = links.iter().map(|link| link.send(&ping, deadline));
        for answer in join_all(answers).await {
            match answer {
                // Somebody who may not ask for a sign of life got one.
                Err(CallError::Refused { answer }) if answer.starts_with("NOPERM") => {}
                Err(error) => {
                    self.shared.doubt.notify_one();
                    return Err(error);
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    async fn ranges(&self, deadline: Instant) -> Result<Arc<Vec<Range>>, CallError> {
        self.mapper
            .0
            .get_or_init(|| tokio::spawn(refresh::keep(self.shared.clone())).abort_handle());
        let mut map = self.shared.map.borrow().clone();
        if matches!(map, Map::Unread) {
            let mut changes = self.shared.map.subscribe();
            let read = timeout_at(deadline, changes.wait_for(|map| !matches!(map, Map::Unread)));
            if let Ok(Ok(read)) = read.await {
                map = read.clone();
            }
        }
        let (address, source) = match map {
            Map::Known(ranges) => return Ok(ranges),
            Map::Unreadable(address, error) => (address, error),
            Map::Unread => {
                let waited_ms = self.shared.access.command_timeout.as_millis();
                (self.shared.seeds[0].clone(), Arc::new(ConnectError::Slow(waited_ms)))
            }
        };
        Err(CallError::Unreachable { address, source })
    }

    fn owner(&self, ranges: &[Range], slot: u16) -> Result<Link, CallError> {
        let index = ranges.partition_point(|range| range.last < slot);
        match ranges.get(index) {
            Some(range) if range.first <= slot => Ok(self.shared.link(&range.owner)),
            _ => {
                self.shared.doubt.notify_one();
                Err(CallError::Unreachable {
                    address: self.shared.seeds[0].clone(),
                    source: Arc::new(ConnectError::SlotWithoutNode(slot)),
                })
            }
        }
    }

    /// One that is up, if any is.
    fn any(&self, ranges: &[Range]) -> Link {
        let up = self.shared.links.lock().values().find(|link| link.is_up()).cloned();
        up.unwrap_or_else(|| self.shared.link(&ranges[0].owner))
    }
}

impl Shared {
    pub(super) fn link(&self, address: &Address) -> Link {
        let mut links = self.links.lock();
        if let Some(link) = links.get(address) {
            return link.clone();
        }
        let link = Link::new(address.clone(), self.access.clone());
        links.insert(address.clone(), link.clone());
        link
    }

    /// The connections that are up.
    pub(super) fn links_up(&self) -> Vec<Link> {
        self.links
            .lock()
            .values()
            .filter(|link| link.is_up())
            .cloned()
            .collect()
    }

    /// Ends the connections to nodes that `keep` does not want.
    pub(super) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        self.links.lock().retain(|address, _| keep(address));
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

fn redirected(answer: &Result<Value, CallError>, asked: &Address) -> Option<(Redirection, Address)> {
    match answer {
        Err(CallError::Refused { answer }) => slots::redirection(answer, asked),
        _ => None,
    }
}

/// Whether the slots may have moved: their node is gone, or says that it is no longer the one.
fn casts_doubt(error: &CallError) -> bool {
    match error {
        CallError::Refused { answer } => {
            let code = answer.split(' ').next().unwrap_or_default();
            matches!(code, "MOVED" | "READONLY" | "CLUSTERDOWN" | "MASTERDOWN")
        }
        CallError::UnexpectedReply => false,
        CallError::Unreachable { .. } | CallError::TimedOut { .. } | CallError::Broken { .. } => true,
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_set()
            .entries(self.shared.links.lock().values())
            .finish()
    }
}
