//! `tollgate ledger export`: entries as CSV, on standard output or in a file that is there once it is whole.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use control::Control;
use control::ledger_csv::EntryKind;
use control::pieces::Pieces;
use domain::periods::{Span, day_start};
use futures_util::StreamExt as _;
use store::random::SystemRandom;
use store::sealing::SecretKey;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use crate::command_line;
use crate::config::{ExportKind, LedgerExportArgs};
use crate::serve::{OpenStore, Signals};

/// Writes what was asked for.
pub async fn export(args: LedgerExportArgs) -> anyhow::Result<()> {
    Signals::install()?.unless_told(write(args)).await
}

async fn write(args: LedgerExportArgs) -> anyhow::Result<()> {
    let open = OpenStore::open(&args.database).await?;
    // Reading opens nothing that is sealed, so any key will do.
    let control = Control::new(
        open.store.clone(),
        SecretKey::generate(&SystemRandom),
        Arc::new(SystemRandom),
    );
    let written = write_from(&control, &args).await;
    open.close().await;
    written
}

async fn write_from(control: &Control, args: &LedgerExportArgs) -> anyhow::Result<()> {
    const UNREADABLE: &str = "the ledger cannot be read; is the schema up to date (`tollgate migrate`)?";
    let zone = control.settings().await.context(UNREADABLE)?.settings.time_zone;
    let kind = match args.kind {
        ExportKind::Settlements => EntryKind::Settlements,
        ExportKind::Rejections => EntryKind::Rejections,
        ExportKind::Adjustments => EntryKind::Adjustments,
    };
    let span = span(args, zone)?;
    let actor = command_line::actor();
    let pieces = control.ledger_csv(&actor, kind, span, args.tenant).await;
    let pieces = pieces.context(UNREADABLE)?;
    match &args.output {
        Some(path) => {
            let mut partial = PartialFile::create(path).await?;
            copy(pieces, &mut partial.file).await?;
            partial.complete().await
        }
        None => {
            let stdout = std::io::stdout().as_fd().try_clone_to_owned();
            let stdout = stdout.context("there is no standard output")?;
            copy(pieces, &mut File::from_std(stdout.into())).await
        }
    }
}

fn span(args: &LedgerExportArgs, zone: Tz) -> anyhow::Result<Span> {
    if let Some(month) = args.month {
        return Ok(month.span(zone));
    }
    let span = Span {
        start: args.from.map_or(DateTime::UNIX_EPOCH, |day| day_start(day, zone)),
        // Whatever is admitted from now on is in no snapshot, and clocks of gateways may be ahead.
        end: args.until.map_or(FAR_AHEAD, |day| day_start(day, zone)),
    };
    if span.start >= span.end {
        bail!("--until must be a day after --from");
    }
    Ok(span)
}

/// Later than every entry, and within what Postgres keeps.
const FAR_AHEAD: DateTime<Utc> = DateTime::from_timestamp(253_000_000_000, 0).expect("an instant");

async fn copy(mut pieces: Pieces, to: &mut File) -> anyhow::Result<()> {
    const UNWRITABLE: &str = "the file cannot be written";
    while let Some(piece) = pieces.next().await {
        let piece = piece.context("the ledger could not be read to its end")?;
        to.write_all(&piece).await.context(UNWRITABLE)?;
    }
    to.flush().await.context(UNWRITABLE)
}

/// A file that is written beside its place, and removed unless it becomes whole.
struct PartialFile {
    file: File,
    partial: PathBuf,
    place: PathBuf,
}

impl PartialFile {
    async fn create(place: &Path) -> anyhow::Result<Self> {
        let Some(name) = place.file_name() else {
            bail!("--output must name a file");
        };
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = place.with_file_name(partial);
        let file = File::create_new(&partial).await;
        Ok(Self {
            file: file.with_context(|| format!("{} cannot be written", partial.display()))?,
            partial,
            place: place.to_owned(),
        })
    }

    async fn complete(self) -> anyhow::Result<()> {
        self.file.sync_all().await.context("the file cannot be written")?;
        tokio::fs::rename(&self.partial, &self.place)
            .await
            .with_context(|| format!("{} cannot be written", self.place.display()))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Once it is whole, it has another name.
        let _ = std::fs::remove_file(&self.partial);
    }
}
