//! `tollgate operator create`.

use std::sync::Arc;

use chrono::Utc;
use control::Control;
use control::people::PersonDraft;
use domain::people::Role;
use store::random::SystemRandom;
use store::sealing::SecretKey;

use crate::command_line;
use crate::config::OperatorCreateArgs;
use crate::serve::{OpenStore, Signals};

/// Invites an operator and prints the one-time link.
pub async fn create(args: OperatorCreateArgs) -> anyhow::Result<()> {
    Signals::install()?.unless_told(invite(args)).await
}

async fn invite(args: OperatorCreateArgs) -> anyhow::Result<()> {
    let open = OpenStore::open(&args.database).await?;
    open.store.migrate().await?;
    // An invitation seals nothing, so any key will do.
    let control = Control::new(
        open.store.clone(),
        SecretKey::generate(&SystemRandom),
        Arc::new(SystemRandom),
    );
    let draft = PersonDraft {
        name: args.name,
        email: args.email,
        role: Role::Operator,
        tenant_id: None,
    };
    let invited = control.invite_person(&command_line::actor(), &draft, Utc::now()).await;
    open.close().await;
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
