//! What images, recordings and documents are thought to weigh. Their tokens depend on pixels, seconds and pages, which
//! are not worth decoding a request for; so these are bounds per part, and a settlement corrects them.

use domain::parts::{Part, PartKind};

/// A small rendering of an image is one tile, the same for every size.
const IMAGE_LOW_DETAIL: MediaEstimate = MediaEstimate::of(85, 2_900);
/// The largest image that most providers do not scale down: eight tiles, and one overview. Some take ten thousand for one
/// that is not scaled at all; a few small models weigh images still higher.
const IMAGE: MediaEstimate = MediaEstimate::of(1_445, 10_000);

/// Encoded bytes of one token (a tenth of a second) in a recording of 24 kHz, 16 bits, and in one of 32 kbit/s.
const AUDIO_BYTES_PER_TOKEN: (u64, u64) = (4_800, 400);
const AUDIO_TOKENS_MAX: MediaEstimate = MediaEstimate::of(10_000, 100_000);

/// Encoded bytes of one token in a document of pictures and in one of plain text.
const FILE_BYTES_PER_TOKEN: (u64, u64) = (20, 4);
const FILE_TOKENS_MAX: MediaEstimate = MediaEstimate::of(50_000, 200_000);
/// A document that is only named has no size.
const FILE_REFERENCE: MediaEstimate = MediaEstimate::of(5_000, 100_000);

/// Bytes of one token in what is encrypted: the text that it stands for is shorter, by how much only the provider knows.
const OPAQUE_BYTES_PER_TOKEN: (u64, u64) = (4, 2);
const OPAQUE_TOKENS_MAX: MediaEstimate = MediaEstimate::of(100_000, 200_000);

/// Tokens of one medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaEstimate {
    /// What it is thought to be.
    pub expected_tokens: u64,
    /// A generous bound, at least `expected_tokens`.
    pub ceiling_tokens: u64,
}

impl MediaEstimate {
    const fn of(expected_tokens: u64, ceiling_tokens: u64) -> Self {
        Self {
            expected_tokens,
            ceiling_tokens,
        }
    }

    /// By size: encoded in base64, so that three quarters of the bytes count.
    fn by_size(encoded_bytes: u64, (most, fewest): (u64, u64), max: Self) -> Self {
        let bytes = encoded_bytes / 4 * 3 + 3;
        Self {
            expected_tokens: bytes.div_ceil(most).min(max.expected_tokens),
            ceiling_tokens: bytes.div_ceil(fewest).min(max.ceiling_tokens),
        }
    }
}

/// What a part that is no text weighs; nothing for text. Tokens are told by their number, on which there is no bound.
pub fn media_tokens(part: &Part<'_>) -> MediaEstimate {
    match part.kind {
        PartKind::Text | PartKind::Definition => MediaEstimate::default(),
        PartKind::Tokens { count } => MediaEstimate {
            expected_tokens: count,
            ceiling_tokens: count,
        },
        PartKind::Opaque => MediaEstimate::by_size(part.bytes, OPAQUE_BYTES_PER_TOKEN, OPAQUE_TOKENS_MAX),
        PartKind::Image { is_low_detail: true } => IMAGE_LOW_DETAIL,
        PartKind::Image { is_low_detail: false } => IMAGE,
        PartKind::Audio => MediaEstimate::by_size(part.bytes, AUDIO_BYTES_PER_TOKEN, AUDIO_TOKENS_MAX),
        PartKind::File if part.bytes == 0 => FILE_REFERENCE,
        PartKind::File => MediaEstimate::by_size(part.bytes, FILE_BYTES_PER_TOKEN, FILE_TOKENS_MAX),
    }
}
