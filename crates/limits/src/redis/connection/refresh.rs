//! Reading the map of a cluster's slots whenever something casts doubt on it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use tokio::time::{Instant, sleep};

use super::cluster::{Map, Shared};
use super::error::{CallError, ConnectError};
use super::outage::Outage;
use super::request::{self, Arg};
use super::settings::Address;
use super::slots::{self, Range};

/// The map is not read more often than this.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// After a failure pauses double up to this.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// This many nodes are asked at once, those first that are known to answer; the first answer counts.
const ASKED_MAX: usize = 6;

type Failure = (Address, Arc<ConnectError>);

/// Keeps the map current until it is aborted.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut pause = PAUSE_MIN;
    let mut outage = Outage::default();
    loop {
        match read(&shared).await {
            Ok(ranges) => {
                pause = PAUSE_MIN;
                outage.is_over(&shared.seeds[0]);
                let owners: HashSet<&Address> = ranges.iter().map(|range| &range.owner).collect();
                shared.retain(|address| owners.contains(address) || shared.seeds.contains(address));
                shared.map.send_replace(Map::Known(Arc::new(ranges)));
                sleep(pause).await;
                shared.doubt.notified().await;
            }
            Err((address, error)) => {
                outage.goes_on(&address, &error);
                shared.map.send_if_modified(|map| {
                    let is_unknown = !matches!(map, Map::Known(_));
                    if is_unknown {
                        *map = Map::Unreadable(address, error);
                    }
                    is_unknown
                });
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

async fn read(shared: &Shared) -> Result<Vec<Range>, Failure> {
    let mut asked: Vec<_> = shared.links_up();
    let seeds = shared.seeds.iter().map(|seed| shared.link(seed));
    asked.extend(seeds.filter(|seed| !seed.is_up()));
    asked.truncate(ASKED_MAX);
    let asked = asked.into_iter().map(|link| {
        Box::pin(async move {
            // Nobody waits for this, and the connection may have to be made first.
            let deadline = Instant::now() + shared.access.connect_timeout + shared.access.command_timeout;
            let command = request::command("CLUSTER", None, &[Arg::from("SLOTS")]);
            let answer = link.send(&command, deadline).await;
            match answer.map(|answer| slots::ranges(answer, link.address())) {
                Ok(Some(ranges)) => Ok(ranges),
                Ok(None) => Err(no_slots(link.address(), "its map is empty")),
                Err(CallError::Unreachable { address, source }) => Err((address, source)),
                Err(error) => Err(no_slots(link.address(), &error.to_string())),
            }
        })
    });
    select_ok(asked).await.map(|(ranges, _)| ranges)
}

fn no_slots(address: &Address, why: &str) -> Failure {
    (address.clone(), Arc::new(ConnectError::NoSlots(why.to_owned())))
}
