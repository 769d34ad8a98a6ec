//! Reverse proxies whose word about the caller's address is taken: sign-ins are throttled and changes noted by it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;

/// Where proxies write whom they speak for, each behind those before it.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Addresses that are read of it at most, from its end.
const HOPS_MAX: usize = 16;

/// One network of trusted proxies: `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedNetwork(IpNet);

/// The text names no such network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedNetwork {
    /// It cannot be read.
    #[error("write an address or a network, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8")]
    Shape,
    /// It holds every address there is.
    #[error("this network holds everybody, so that each caller could say where they come from: name the proxies")]
    Everybody,
}

impl FromStr for TrustedNetwork {
    type Err = UntrustedNetwork;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let network = text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| UntrustedNetwork::Shape)?;
        if network.prefix_len() == 0 {
            return Err(UntrustedNetwork::Everybody);
        }
        Ok(Self(network))
    }
}

/// All of them; nobody is trusted by default. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Arc<[TrustedNetwork]>);

impl FromStr for TrustedProxies {
    type Err = UntrustedNetwork;

    /// Networks separated by commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let networks = text.split(',').filter(|network| !network.trim().is_empty());
        networks
            .map(str::parse)
            .collect::<Result<Arc<[TrustedNetwork]>, _>>()
            .map(Self)
    }
}

impl TrustedProxies {
    /// The caller behind `peer`, who is connected: `peer`, unless it is a trusted proxy; then the last address of
    /// `X-Forwarded-For` that is none. What stands before that one was written by whoever likes, and is not read. Addresses of
    /// IPv4 that are written as ones of IPv6 become what they are. The port is 0 where the header tells none.
    pub fn caller(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        let mut caller = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if !self.holds(caller.ip()) {
            return caller;
        }
        let lines: Vec<&str> = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .map(|line| line.to_str().unwrap_or_default())
            .collect();
        let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
        for hop in hops.take(HOPS_MAX) {
            // What cannot be read is nobody's address: the proxy that wrote it is as far as one can see.
            let Some(address) = address(hop) else { break };
            caller = address;
            if !self.holds(caller.ip()) {
                break;
            }
        }
        caller
    }

    fn holds(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.0.contains(&address))
    }
}

/// An address as proxies write it: with or without a port, one of IPv6 with or without brackets.
fn address(hop: &str) -> Option<SocketAddr> {
    let hop = hop.trim();
    if let Ok(address) = hop.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let bare = hop
        .strip_prefix('[')
        .and_then(|hop| hop.strip_suffix(']'))
        .unwrap_or(hop);
    let address: IpAddr = bare.parse().ok()?;
    Some(SocketAddr::new(address.to_canonical(), 0))
}

#[cfg(test)]
mod tests;
