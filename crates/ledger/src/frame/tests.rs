use super::*;
use crate::examples;

/// Three records numbered from 7, and where each starts.
fn three() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    for (seq, record) in (7..).zip([examples::hold(0), examples::rejection(1), examples::settlement(0)]) {
        let mut frame = encode(&record).unwrap();
        seal(&mut frame, seq);
        starts.push(bytes.len());
        bytes.extend(frame);
    }
    starts.push(bytes.len());
    (bytes, starts)
}

fn pieces(bytes: &[u8]) -> (Vec<u64>, Vec<Range<usize>>, usize) {
    let (mut seqs, mut damages, mut tail) = (Vec::new(), Vec::new(), 0);
    crate::segment::for_each_piece(bytes, 7, |piece| match piece {
        Piece::Record { seq, .. } => seqs.push(*seq),
        Piece::Damage { bytes, .. } => damages.push(bytes.clone()),
        Piece::Tail { start } => tail = *start,
    });
    (seqs, damages, tail)
}

#[test]
fn a_record_cut_anywhere_is_the_tail() {
    let (bytes, starts) = three();
    assert_eq!(pieces(&bytes), (vec![7, 8, 9], vec![], bytes.len()));
    for end in starts[2]..bytes.len() {
        assert_eq!(pieces(&bytes[..end]), (vec![7, 8], vec![], starts[2]), "cut at {end}");
    }
}

#[test]
fn a_byte_damaged_anywhere_costs_one_record() {
    let (bytes, starts) = three();
    for at in starts[1]..starts[2] {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let (seqs, damages, tail) = pieces(&damaged);
            assert_eq!(seqs, [7, 9], "flipped {flip:#x} at {at}");
            assert_eq!(
                (damages.len(), &damages[0]),
                (1, &(starts[1]..starts[2])),
                "flipped {flip:#x} at {at}"
            );
            assert_eq!(tail, bytes.len());
        }
    }
}

#[test]
fn zeros_and_an_older_copy_are_no_records() {
    let (bytes, starts) = three();
    let zeros = [&bytes[..], &[0; 4_096]].concat();
    assert_eq!(pieces(&zeros), (vec![7, 8, 9], vec![], bytes.len()));
    // A stale block behind the end, as a disk may leave after a power failure.
    let stale = [&bytes[..], &bytes[..starts[1]]].concat();
    assert_eq!(pieces(&stale), (vec![7, 8, 9], vec![], bytes.len()));
}

#[test]
fn a_record_beyond_the_bound_is_refused() {
    let JournalRecord::Rejection(mut rejection) = examples::rejection(0) else {
        unreachable!()
    };
    rejection.message = "x".repeat(PAYLOAD_BYTES_MAX);
    assert!(encode(&JournalRecord::Rejection(rejection)).is_none());
}
