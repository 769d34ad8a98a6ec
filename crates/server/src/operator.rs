//! `tollgate operator create`.

use std::sync::Arc;

use chrono::Utc;
use control::people::PersonDraft;
use control::{Actor, Control};
use domain::people::Role;
use store::random::SystemRandom;

use crate::config::OperatorCreateArgs;
use crate::data_dir::DataDir;
use crate::serve::open_store;

/// Invites an operator and prints the one-time link.
pub async fn create(args: OperatorCreateArgs) -> anyhow::Result<()> {
    let secret_key = DataDir::open(&args.database.data_dir)?.secret_key(args.secret_key.as_deref())?;
    let (store, postgres) = open_store(&args.database).await?;
    let control = Control::new(store.clone(), secret_key, Arc::new(SystemRandom));
    let draft = PersonDraft {
        name: args.name,
        email: args.email,
        role: Role::Operator,
        tenant_id: None,
    };
    let invited = control
        .invite_person(&Actor::System { name: "command line" }, &draft, Utc::now())
        .await;
    store.close().await;
    if let Some(postgres) = postgres {
        postgres.stop().await;
    }
    let invitation = invited?;
    println!(
        "Open this link to choose the password. It can be used once, until {}:",
        invitation.expires_at.format("%F %R UTC")
    );
    println!(
        "{}/invitation?token={}",
        args.public_url.as_str().trim_end_matches('/'),
        invitation.token.reveal()
    );
    Ok(())
}
