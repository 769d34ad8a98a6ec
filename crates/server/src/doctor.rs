//! `tollgate doctor`: the list for production, on standard output.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use chrono::Utc;
use control::{Actor, Control};
use domain::checklist::{Item, State};
use store::random::SystemRandom;
use store::sealing::SecretKey;

use crate::config::DatabaseArgs;
use crate::serve::{OpenStore, Signals};

/// What it ends with when something is to be done.
const TO_DO: u8 = 1;
/// What it ends with when it could not look, or not at everything.
const NOT_KNOWN: u8 = 2;

/// Looks, prints, and says how it ended.
pub async fn doctor(args: DatabaseArgs) -> ExitCode {
    let looked = match Signals::install() {
        Ok(mut signals) => signals.unless_told(look(args)).await,
        Err(error) => Err(error),
    };
    match looked {
        Ok(items) => {
            print!("{}", written(&items));
            match outcome(&items) {
                State::Good => ExitCode::SUCCESS,
                State::ToDo => ExitCode::from(TO_DO),
                State::Unknown => ExitCode::from(NOT_KNOWN),
            }
        }
        Err(error) => {
            eprintln!("tollgate: {error:#}");
            ExitCode::from(NOT_KNOWN)
        }
    }
}

async fn look(args: DatabaseArgs) -> anyhow::Result<Vec<Item>> {
    let open = OpenStore::open_to_look(&args).await?;
    // The list unseals nothing, so any key will do.
    let control = Control::new(
        open.store.clone(),
        SecretKey::generate(&SystemRandom),
        Arc::new(SystemRandom),
    );
    let items = control
        .checklist(&Actor::System { name: "command line" }, Utc::now())
        .await;
    open.close().await;
    items.context("the database cannot be read; is it there, and is the schema up to date (`tollgate migrate`)?")
}

/// The worst of them: what is to be done before what is not known.
fn outcome(items: &[Item]) -> State {
    let any = |state| items.iter().any(|item| item.state == state);
    if any(State::ToDo) {
        State::ToDo
    } else if any(State::Unknown) {
        State::Unknown
    } else {
        State::Good
    }
}

/// One paragraph for each item; what is good is one line.
fn written(items: &[Item]) -> String {
    let mut text = String::new();
    for item in items {
        let subject = item.subject;
        text.push_str(&format!(
            "[{}] {}: {}\n",
            item.state.word(),
            subject.title(),
            item.found
        ));
        if item.state != State::Good {
            text.push_str(&format!("    {}\n    {}\n", subject.meaning(), subject.advice()));
        }
    }
    text
}

#[cfg(test)]
mod tests;
