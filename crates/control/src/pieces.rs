//! Long documents in pieces, made row by row while the database is read. A document that is broken off lacks its end, and
//! so cannot be taken for a whole one.

use futures_util::stream::{self, BoxStream, StreamExt};
use store::StoreError;

use crate::ControlError;

/// Rows that make one piece.
const ROWS_PER_PIECE: usize = 256;

/// The bytes of a document. An error is their end.
pub type Pieces = BoxStream<'static, Result<Vec<u8>, ControlError>>;

/// How rows become a document.
pub(crate) trait Document: Send + 'static {
    /// What it is made of.
    type Row: Send + 'static;

    /// What precedes the rows.
    fn start(&mut self) -> Result<Vec<u8>, ControlError>;

    /// Some rows.
    fn rows(&mut self, rows: Vec<Self::Row>) -> Result<Vec<u8>, ControlError>;

    /// What follows the last row.
    fn end(&mut self) -> Result<Vec<u8>, ControlError>;
}

/// The bytes of a document in pieces: its start, its rows, its end.
pub(crate) fn pieces<D: Document>(rows: BoxStream<'static, Result<D::Row, StoreError>>, document: D) -> Pieces {
    let start = Step::Start {
        rows: rows.chunks(ROWS_PER_PIECE).boxed(),
        document,
    };
    stream::unfold(start, next_piece).boxed()
}

type RowChunks<R> = BoxStream<'static, Vec<Result<R, StoreError>>>;

/// What comes next.
enum Step<D: Document> {
    Start { rows: RowChunks<D::Row>, document: D },
    Rows { rows: RowChunks<D::Row>, document: D },
    Nothing,
}

async fn next_piece<D: Document>(step: Step<D>) -> Option<(Result<Vec<u8>, ControlError>, Step<D>)> {
    let (piece, rows, document) = match step {
        Step::Nothing => return None,
        Step::Start { rows, mut document } => (document.start(), rows, document),
        Step::Rows { mut rows, mut document } => match rows.next().await {
            None => return Some((document.end(), Step::Nothing)),
            Some(chunk) => (piece(&mut document, chunk), rows, document),
        },
    };
    Some(match piece {
        Ok(bytes) => (Ok(bytes), Step::Rows { rows, document }),
        Err(error) => (Err(error), Step::Nothing),
    })
}

fn piece<D: Document>(document: &mut D, rows: Vec<Result<D::Row, StoreError>>) -> Result<Vec<u8>, ControlError> {
    let rows: Vec<D::Row> = rows.into_iter().collect::<Result<_, _>>()?;
    document.rows(rows)
}
