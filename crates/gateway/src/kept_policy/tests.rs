//! What is kept is sealed, and read back only under its own key.

use std::sync::Arc;

use domain::policy::{PolicyChanges, Settings};
use domain::prices::Unpriced;
use store::sealing::SecretKey;

use super::{KEPT_POLICY_FILE, KeptPolicy, KeptPolicyError};

fn policy() -> PolicyChanges {
    PolicyChanges {
        version: 7,
        adjusted_version: 3,
        settings: Settings {
            time_zone: chrono_tz::Asia::Tokyo,
            currency: "JPY".into(),
            unpriced: Unpriced::Refuse,
            rehearsal_percent: None,
        },
        tenants: Vec::new(),
        plans: Vec::new(),
        keys: Vec::new(),
        models: Vec::new(),
        prices: Vec::new(),
        upstreams: Vec::new(),
        limits: Vec::new(),
    }
}

#[tokio::test]
async fn the_kept_policy_is_sealed_and_reads_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let kept = KeptPolicy::new(directory.path(), Arc::new(SecretKey::from_bytes([1; 32])));
    assert!(kept.read().await.expect("nothing is no error").is_none());
    kept.write(policy()).await.expect("written");
    assert_eq!(kept.read().await.expect("read"), Some(policy()));
    let bytes = std::fs::read(directory.path().join(KEPT_POLICY_FILE)).expect("a file");
    assert!(!bytes.windows(10).any(|window| window == b"Asia/Tokyo"));

    let other = KeptPolicy::new(directory.path(), Arc::new(SecretKey::from_bytes([2; 32])));
    assert!(matches!(other.read().await, Err(KeptPolicyError::Unusable)));
}
