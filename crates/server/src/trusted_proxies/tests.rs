//! Callers are who the proxies say that are trusted, and nobody else's word counts.

use std::net::SocketAddr;

use http::HeaderMap;

use super::{HOPS_MAX, TrustedProxies, UntrustedNetwork};

fn trusting(networks: &[&str]) -> TrustedProxies {
    networks.join(",").parse().expect("networks")
}

fn caller(proxies: &TrustedProxies, peer: &str, lines: &[&str]) -> String {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append("x-forwarded-for", line.parse().expect("a line"));
    }
    let peer: SocketAddr = peer.parse().expect("an address");
    proxies.caller(peer, &headers).ip().to_string()
}

#[test]
fn without_a_trusted_proxy_the_header_is_only_text() {
    let nobody = TrustedProxies::default();
    assert_eq!(caller(&nobody, "192.0.2.1:80", &["198.51.100.7"]), "192.0.2.1");
    let proxies = trusting(&["10.0.0.0/8"]);
    assert_eq!(caller(&proxies, "192.0.2.1:80", &["198.51.100.7"]), "192.0.2.1");
    assert_eq!(caller(&proxies, "10.1.2.3:80", &[]), "10.1.2.3");
}

#[test]
fn the_last_address_that_is_no_proxys_counts() {
    let proxies = trusting(&["10.0.0.0/8", "192.0.2.9", "fd00::/8"]);
    for (lines, expected) in [
        (&["198.51.100.7"][..], "198.51.100.7"),
        // A caller that writes the header itself.
        (&["203.0.113.1, 198.51.100.7"], "198.51.100.7"),
        (&["203.0.113.1, 198.51.100.7, 10.0.0.5,192.0.2.9"], "198.51.100.7"),
        // Several lines are one list.
        (&["203.0.113.1", "198.51.100.7, 10.0.0.5"], "198.51.100.7"),
        (&["203.0.113.1, 198.51.100.7", "10.0.0.5"], "198.51.100.7"),
        // Within the house.
        (&["10.0.0.6, 10.0.0.5"], "10.0.0.6"),
        (&["198.51.100.7:4711"], "198.51.100.7"),
        (&["2001:db8::1, fd00::5"], "2001:db8::1"),
        (&["[2001:db8::1]:4711"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["::ffff:198.51.100.7"], "198.51.100.7"),
        // What is no address ends it: who wrote that is as far as one can see.
        (&["198.51.100.7, unknown, 10.0.0.5"], "10.0.0.5"),
        (&["unknown"], "10.9.9.9"),
        (&[""], "10.9.9.9"),
    ] {
        assert_eq!(caller(&proxies, "10.9.9.9:80", lines), expected, "{lines:?}");
    }
    // A socket for both kinds of address.
    assert_eq!(
        caller(&proxies, "[::ffff:10.9.9.9]:80", &["198.51.100.7"]),
        "198.51.100.7"
    );
}

#[test]
fn a_long_list_is_read_from_its_end_and_not_to_its_beginning() {
    let proxies = trusting(&["10.0.0.0/8"]);
    let hops = vec!["10.0.0.5"; HOPS_MAX];
    assert_eq!(
        caller(
            &proxies,
            "10.9.9.9:80",
            &[&format!("198.51.100.7, {}", hops.join(", "))]
        ),
        "10.0.0.5"
    );
}

#[test]
fn a_network_is_read_or_refused_with_what_to_write() {
    for text in ["10.0.0.7", " 10.0.0.0/8", "fd00::/8", "::1"] {
        assert!(text.parse::<TrustedProxies>().is_ok(), "{text}");
    }
    assert_eq!(
        caller(&trusting(&["", ""]), "10.1.2.3:80", &["198.51.100.7"]),
        "10.1.2.3"
    );
    for text in ["proxy", "10.0.0.0/33", "10.0.0.0-10.0.0.9"] {
        assert_eq!(
            text.parse::<TrustedProxies>().err(),
            Some(UntrustedNetwork::Shape),
            "{text}"
        );
    }
    for text in ["0.0.0.0/0", "::/0"] {
        assert_eq!(
            text.parse::<TrustedProxies>().err(),
            Some(UntrustedNetwork::Everybody),
            "{text}"
        );
    }
}
