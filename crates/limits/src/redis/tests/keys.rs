//! What keys are called, and that none of them stays for ever.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use domain::estimate::Estimate;
use domain::ids::{KeyId, TenantId};
use domain::limits::{Dimension, Limit, Mode, Scope};
use domain::periods::Period;
use uuid::Uuid;

use super::fixture::{Asking, Gateway, Servers, patient, until};
use crate::fixture::{amounts, limit, on, upstream};
use crate::redis::health::RISE_MS;
use crate::{RoomLeft, ScopeLimits, UpstreamCandidate, UpstreamRoom};

const TENANT: TenantId = TenantId(Uuid::from_u128(7));
const KEY: KeyId = KeyId(Uuid::from_u128(8));
const MODEL: &str = "m";

/// Every dimension that counts, in every period, with room for a few requests.
fn limits() -> Vec<Limit> {
    let rates = [
        limit(Dimension::Requests, 12),
        limit(Dimension::InputTokens, 100_000),
        limit(Dimension::OutputTokens, 100_000),
        limit(Dimension::TotalTokens, 100_000),
        limit(Dimension::Concurrency, 6),
        Limit {
            window_seconds: 1,
            mode: Mode::Rehearse,
            ..limit(Dimension::TotalTokens, 1)
        },
        Limit {
            window_seconds: 3_600,
            model: Some(MODEL.into()),
            ..limit(Dimension::Requests, 1_000)
        },
    ];
    let periods = [Period::Hour, Period::Day, Period::Week, Period::Month];
    let budgets = periods.into_iter().flat_map(|period| {
        let of = |dimension, value| Limit {
            period,
            ..limit(dimension, value)
        };
        [
            of(Dimension::BudgetTokens, 1_000_000),
            of(Dimension::BudgetCost, 1_000_000_000),
        ]
    });
    rates.into_iter().chain(budgets).collect()
}

fn asking() -> Asking {
    let node = |scope| on(scope, limits());
    let mut asking = Asking::of(vec![
        node(Scope::Global),
        node(Scope::ModelGroup("group {of} models".into())),
        node(Scope::Model(MODEL.into())),
        node(Scope::Tenant(TENANT)),
        node(Scope::User(TENANT, "someone@example.com".into())),
        ScopeLimits::of_key(KEY, TENANT, limits().into()),
    ]);
    asking.upstreams = [1, 2]
        .map(|number| UpstreamCandidate {
            scope: node(upstream(number)),
            index: number as usize,
        })
        .into();
    asking
}

/// One of everything that a gateway does, with some requests left under way.
async fn live(gateway: &Gateway, asking: &Asking) -> Vec<crate::Hold> {
    assert!(gateway.read_budgets(asking, 0, &[]).await);
    let told = UpstreamRoom {
        requests: Some(RoomLeft {
            remaining: 1_000,
            reset_ms: Some(1),
        }),
        ..UpstreamRoom::default()
    };
    let account = &asking.upstreams[0].scope;
    gateway
        .limits
        .correct_upstream(account, MODEL, &told, gateway.now())
        .await;
    let mut holds = Vec::new();
    while let Ok(hold) = gateway.admit(asking).await {
        holds.push(hold);
    }
    assert_eq!(holds.len(), 6);
    let one_upstream = |index: usize| {
        let upstreams = asking.upstreams[index..].to_vec();
        Asking {
            upstreams,
            ..asking.clone()
        }
    };
    for (index, mut hold) in holds.drain(..4).enumerate() {
        let second = one_upstream(1);
        let admission = crate::Admission {
            id: hold.id(),
            ..second.admission()
        };
        let switched = gateway
            .limits
            .switch_upstream(&mut hold, &admission, gateway.now())
            .await;
        assert!(switched.is_ok(), "{switched:?}");
        match index {
            0 => gateway.settle(hold, amounts(10, 10, 1_000), 1).await,
            1 => gateway.settle(hold, amounts(1_000, 100, 500_000_000), 2).await,
            2 => gateway.refund(hold).await,
            _ => drop(hold),
        }
    }
    // One that only the last of the scopes refuses.
    let much = Asking {
        estimate: Estimate {
            expected: amounts(1, 1, 1_000),
            ceiling: amounts(1, 1, 2_000_000_000),
        },
        ..asking.clone()
    };
    assert!(gateway.admit(&much).await.is_err());
    holds.push(gateway.admitted(asking).await);
    let budgets = asking.budgets(gateway.now());
    until("parts are set aside", async || {
        let part = |key| gateway.store().allowance(key, gateway.now());
        budgets.iter().all(|key| part(key) > Some(0))
    })
    .await;
    for hold in &holds {
        gateway.store().renew_now(hold.id(), gateway.now()).await;
    }
    gateway.until_told().await;
    assert!(gateway.read_budgets(asking, 0, &[(gateway.name, 1)]).await);
    holds
}

async fn check_expiries(servers: &Servers, after: &str) -> usize {
    let mut count = 0;
    for node in servers.nodes() {
        for key in node.command(&["KEYS", "*"]).await.lines() {
            let expires_ms: i64 = node.command(&["PTTL", key]).await.parse().expect("a number");
            // Some end in the meantime.
            assert!(expires_ms > 0 || expires_ms == -2, "{key} stays for ever after {after}");
            count += 1;
        }
    }
    count
}

async fn check_that_every_key_expires(servers: Servers) {
    let asking = asking();
    let gateway = Gateway::start(&patient(servers.url()), "one").await;
    let holds = live(&gateway, &asking).await;
    let count = check_expiries(&servers, "some requests").await;
    let counters = asking.scopes.len() * limits().len();
    assert!(count > counters, "{count} of at least {counters}");
    for hold in holds {
        gateway.refund(hold).await;
    }
    gateway.limits.leave().await;
    check_expiries(&servers, "all requests").await;
}

#[tokio::test]
async fn every_key_expires() {
    check_that_every_key_expires(Servers::one().await).await;
}

#[tokio::test]
async fn every_key_expires_in_a_cluster() {
    check_that_every_key_expires(Servers::cluster().await).await;
}

#[tokio::test]
async fn no_key_comes_back_for_ever_after_it_alone_was_lost() {
    let servers = Servers::one().await;
    let Servers::One(server) = &servers else {
        unreachable!("one server");
    };
    let asking = Asking::of(vec![on(Scope::Tenant(TENANT), limits())]);
    let gateway = Gateway::start(&patient(server.url()), "one").await;
    let mut kinds = HashSet::new();
    for round in 1.. {
        servers.flush().await;
        gateway.store().beat_now().await;
        gateway.signs.pass(RISE_MS);
        let settled = gateway.signs.last_settled.load(Ordering::SeqCst);
        until("they are read", async || {
            gateway.read_budgets(&asking, 0, &[(gateway.name, settled)]).await
        })
        .await;
        let [first, second, third, fourth] = [
            gateway.admitted(&asking).await,
            gateway.admitted(&asking).await,
            gateway.admitted(&asking).await,
            gateway.admitted(&asking).await,
        ];
        gateway.store().beat_now().await;
        // Each in its turn, and what requests have taken all together.
        let keys = servers.keys().await;
        let kind = |key: &str| key.split(":request:").next().unwrap_or_default().to_owned();
        let Some(lost) = keys.iter().map(|key| kind(key)).find(|kind| !kinds.contains(kind)) else {
            assert!(round > limits().len());
            break;
        };
        for key in keys.iter().filter(|key| kind(key) == lost) {
            server.command(&["DEL", key]).await;
        }
        gateway.refund(first).await;
        check_expiries(&servers, &lost).await;
        gateway.store().renew_now(second.id(), gateway.now()).await;
        check_expiries(&servers, &lost).await;
        gateway.settle(third, amounts(1, 1, 1_000), settled + 1).await;
        gateway.store().beat_now().await;
        drop(gateway.admit(&asking).await);
        gateway.refund(second).await;
        drop(fourth);
        gateway.until_told().await;
        check_expiries(&servers, &lost).await;
        kinds.insert(lost);
    }
}

#[tokio::test]
async fn keys_are_named_by_their_scope_and_stand_with_those_of_their_tenant() {
    let servers = Servers::one().await;
    let asking = asking();
    let gateway = Gateway::start(&patient(servers.url()), "one").await;
    let holds = live(&gateway, &asking).await;
    let tenant = TENANT.to_string();
    let [first, second] = [1, 2].map(|number| format!("{}", upstream(number)));
    let scopes = [
        ("global", "global".to_owned()),
        (
            "models:group %7Bof%7D models",
            "models:group %7Bof%7D models".to_owned(),
        ),
        ("model:m", "model:m".to_owned()),
        (tenant.as_str(), format!("tenant:{tenant}")),
        (tenant.as_str(), format!("user:{tenant}/someone%40example.com")),
        (tenant.as_str(), format!("key:{KEY}")),
        (first.as_str(), first.clone()),
        (second.as_str(), second.clone()),
    ];
    let mut wanted: Vec<String> = scopes
        .iter()
        .map(|(tag, scope)| format!("rate_limit:{{{tag}}}:{scope}:"))
        .collect();
    let keys = servers.keys().await;
    // Nothing is under way at the last any more.
    for scope in &wanted[..scopes.len() - 1] {
        for rest in [
            "requests:60",
            "requests:3600:m",
            "concurrency",
            "total_tokens:1",
            "budget_cost:month@1793491200",
        ] {
            assert!(keys.contains(&format!("{scope}{rest}")), "{scope}{rest} of {keys:#?}");
        }
    }
    let told = format!("rate_limit:{{{first}}}:{first}:requests:60:told");
    assert!(keys.contains(&told), "{told} of {keys:#?}");
    let tags = scopes.iter().map(|(tag, _)| format!("rate_limit:{{{tag}}}:request:"));
    wanted.extend(tags);
    wanted.push("rate_limit:{gateways}:beats".to_owned());
    for key in &keys {
        assert!(wanted.iter().any(|begin| key.starts_with(begin.as_str())), "{key}");
    }
    drop(holds);
}
