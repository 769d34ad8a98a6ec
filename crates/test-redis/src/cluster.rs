//! Three servers that are one cluster.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::options::Options;
use crate::poll;
use crate::server::RedisServer;

const NODES: usize = 3;
const SLOTS: usize = 16_384;
const FORM_WAIT_MAX: Duration = Duration::from_secs(60);
/// After this long without an answer a node is held to be gone.
const NODE_TIMEOUT_MS: u32 = 1_000;

/// A cluster of three primaries on free ports of 127.0.0.1, each with a third of the slots in order.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Returns once all nodes agree that the cluster is complete.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// The same with options, which hold for every node.
    ///
    /// # Panics
    /// With TLS: the nodes would have to trust each other.
    pub async fn start_with(options: Options) -> Self {
        assert!(!options.has_tls, "a cluster with TLS cannot be started here");
        let options = options
            .config("cluster-enabled yes")
            .config(&format!("cluster-node-timeout {NODE_TIMEOUT_MS}"));
        let mut nodes = Vec::with_capacity(NODES);
        for index in 0..NODES {
            let node = RedisServer::start_with(options.clone()).await;
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])
                .await;
            let slots: Vec<String> = slots(index).map(|slot| slot.to_string()).collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            node.command(&words).await;
            nodes.push(node);
        }
        let first = nodes[0].port().to_string();
        for node in &nodes[1..] {
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &first]).await;
        }
        let cluster = Self { nodes };
        cluster.wait_until_formed().await;
        cluster
    }

    async fn wait_until_formed(&self) {
        for node in &self.nodes {
            poll::until("the cluster forms", FORM_WAIT_MAX, async || {
                let info = node.command(&["CLUSTER", "INFO"]).await;
                let is_formed = info.lines().any(|line| line == "cluster_state:ok")
                    && info.lines().any(|line| line == format!("cluster_known_nodes:{NODES}"));
                if is_formed { Ok(()) } else { Err(info) }
            })
            .await;
        }
    }

    /// The addresses of all nodes in one: `redis-cluster://host:port,host:port,host:port`.
    pub fn url(&self) -> String {
        let urls = self.urls();
        // The login, if any, is that of the first.
        let rest = urls[1..]
            .iter()
            .map(|url| url.rsplit(['@', '/']).next().unwrap_or_default());
        let addresses: Vec<&str> = [urls[0].as_str()].into_iter().chain(rest).collect();
        let scheme_end = urls[0].find("://").expect("a URL has a scheme");
        let (scheme, _) = urls[0].split_at(scheme_end);
        format!("{scheme}-cluster{}", &addresses.join(",")[scheme_end..])
    }

    /// The address of each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// One node; it has the slots of [`Self::slots`].
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index]
    }

    /// One node, to kill or restart it.
    pub fn node_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index]
    }

    /// The slots that node `index` begins with.
    pub fn slots(&self, index: usize) -> RangeInclusive<usize> {
        slots(index)
    }

    /// The node that a key began on, by its slot.
    pub async fn node_of(&self, key: &str) -> usize {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).await;
        let slot: usize = slot.parse().expect("a slot is a number");
        (0..NODES)
            .find(|index| slots(*index).contains(&slot))
            .expect("every slot has a node")
    }
}

fn slots(index: usize) -> RangeInclusive<usize> {
    let first = |index: usize| index * SLOTS / NODES;
    first(index)..=first(index + 1) - 1
}
