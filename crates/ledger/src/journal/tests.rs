use std::collections::HashSet;
use std::fs::{self, File};

use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::examples::{at, hold, rejection, settlement};

const SMALL: JournalSettings = JournalSettings {
    segment_bytes: 2_000,
    bytes_max: 1 << 20,
    refusals_percent: 100,
    fsync: FsyncPolicy::Os,
    fsync_interval: Duration::from_secs(1),
};

fn open(directory: &TempDir, number: u64) -> (Arc<Journal>, Recovered) {
    Journal::open(directory.path(), "one", SMALL, at(number)).unwrap()
}

fn append_all(journal: &Journal, records: &[JournalRecord]) -> Vec<u64> {
    records.iter().map(|record| journal.append(record).unwrap()).collect()
}

/// Everything behind `seq`, read in batches of `records_max`.
fn read_all(journal: &Journal, mut seq: u64, records_max: usize) -> Vec<Entry> {
    let mut all = Vec::new();
    loop {
        let entries = journal.read_after(seq, records_max, 1_500).unwrap();
        let Some(last) = entries.last() else {
            return all;
        };
        seq = last.seq;
        all.extend(entries);
    }
}

fn records(entries: Vec<Entry>) -> Vec<(u64, JournalRecord)> {
    entries
        .into_iter()
        .map(|entry| match entry.content {
            Content::Record(record) => (entry.seq, record),
            Content::Unreadable { reason, .. } => panic!("{} is unreadable: {reason}", entry.seq),
        })
        .collect()
}

fn segment_files(directory: &TempDir) -> Vec<u64> {
    segment::list(directory.path()).unwrap()
}

fn copy(directory: &TempDir) -> TempDir {
    let copy = TempDir::new().unwrap();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

#[test]
fn a_record_torn_at_any_byte_is_cut_off_and_the_rest_stays() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let seqs = append_all(&journal, &[hold(0), rejection(1)]);
    let path = segment::path(directory.path(), seqs[0]);
    let whole = fs::metadata(&path).unwrap().len();
    journal.append(&settlement(0)).unwrap();
    drop(journal);
    let end = fs::metadata(&path).unwrap().len();
    for cut in whole..end {
        let torn = copy(&directory);
        let path = segment::path(torn.path(), seqs[0]);
        File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let (journal, recovered) = open(&torn, 5);
        assert_eq!(recovered.torn_bytes, cut - whole);
        assert_eq!(recovered.open_holds.len(), 1, "the ending is torn at {cut}");
        assert_eq!(recovered.unshipped, 2);
        let again = journal.append(&settlement(0)).unwrap();
        assert!(again > seqs[1] + 1);
        drop(journal);
        let (journal, recovered) = open(&torn, 6);
        assert_eq!(
            recovered,
            Recovered {
                unshipped: 3,
                ..Recovered::default()
            }
        );
        assert_eq!(
            records(read_all(&journal, 0, 10)),
            [(seqs[0], hold(0)), (seqs[1], rejection(1)), (again, settlement(0))]
        );
    }
}

#[test]
fn damage_in_the_middle_is_handed_over_for_quarantine_and_the_rest_is_read() {
    for is_last_of_its_segment in [false, true] {
        let directory = TempDir::new().unwrap();
        let (journal, _) = open(&directory, 0);
        let seqs = append_all(
            &journal,
            &[rejection(0), rejection(1), rejection(2), rejection(3), rejection(4)],
        );
        drop(journal);
        let files = segment_files(&directory);
        assert!(files.len() > 1, "the example fills more than one segment");
        let path = segment::path(directory.path(), files[0]);
        let mut bytes = fs::read(&path).unwrap();
        let in_first = seqs.iter().filter(|&&seq| seq < files[1]).count();
        let damaged = if is_last_of_its_segment { in_first - 1 } else { 0 };
        let offset = bytes.len() / in_first * damaged + 40;
        bytes[offset] ^= 0xff;
        fs::write(&path, &bytes).unwrap();

        // The first of a life's segments is followed without a gap; then nothing tells that a record is missing but that
        // bytes are left over, and their number is the one before the next segment.
        let (journal, recovered) = open(&directory, 9);
        assert_eq!(recovered.damaged_places, 1);
        for records_max in [1, 2, 10] {
            let entries = read_all(&journal, 0, records_max);
            assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), seqs);
            for (at, entry) in entries.iter().enumerate() {
                let is_readable = matches!(entry.content, Content::Record(_));
                assert_eq!(is_readable, at != damaged, "record {at} of {}", entries.len());
            }
        }
    }
}

#[test]
fn a_last_record_that_was_written_whole_and_damaged_since_is_not_cut_off() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let seqs = append_all(&journal, &[rejection(0), rejection(1)]);
    drop(journal);
    let path = segment::path(directory.path(), seqs[0]);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 5;
    bytes[last] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    let (journal, recovered) = open(&directory, 9);
    assert_eq!((recovered.damaged_places, recovered.torn_bytes), (1, 0));
    let later = journal.append(&rejection(2)).unwrap();
    let entries = read_all(&journal, 0, 10);
    assert_eq!(
        entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(),
        [seqs[0], seqs[1], later]
    );
    assert!(matches!(entries[1].content, Content::Unreadable { .. }));
}

#[test]
fn a_hold_without_an_ending_is_settled_as_abandoned_once() {
    let directory = TempDir::new().unwrap();
    let (journal, recovered) = open(&directory, 0);
    assert_eq!(recovered, Recovered::default());
    append_all(&journal, &[hold(0), hold(1), settlement(0), hold(2)]);
    assert_eq!(journal.status(at(60)).open_holds, 2);
    assert_eq!(journal.settle_abandoned(at(60)).unwrap(), []);
    drop(journal);

    let (journal, recovered) = open(&directory, 100);
    let ids: Vec<_> = recovered.open_holds.iter().map(|hold| hold.identity.id).collect();
    assert_eq!(ids, [hold(1).request_id(), hold(2).request_id()]);
    let settled = journal.settle_abandoned(at(100)).unwrap();
    assert_eq!(settled.len(), 2);
    for (seq, settlement) in &settled {
        assert_eq!(settlement.outcome, domain::ledger::Outcome::Abandoned);
        let found = records(journal.read_after(seq - 1, 1, 1).unwrap());
        assert_eq!(found, [(*seq, JournalRecord::Settlement(Box::new(settlement.clone())))]);
    }
    assert_eq!(journal.settle_abandoned(at(101)).unwrap(), []);
    assert_eq!(journal.status(at(101)).open_holds, 0);
    drop(journal);
    assert_eq!(open(&directory, 200).1.open_holds, []);
}

#[test]
fn a_full_journal_refuses_new_requests_and_takes_endings() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings {
        bytes_max: 40_000,
        ..SMALL
    };
    let (journal, _) = Journal::open(directory.path(), "one", settings, at(0)).unwrap();
    let mut begun = 0;
    let refused = loop {
        match journal.append(&hold(begun)) {
            Ok(_) => begun += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::Full), "{refused}");
    assert!(begun > 1);
    assert!(matches!(journal.append(&rejection(900)), Err(AppendError::Full)));
    assert!(journal.status(at(0)).is_full);
    for number in 0..begun {
        journal.append(&settlement(number)).unwrap();
    }
    let status = journal.status(at(0));
    assert!(
        status.bytes <= settings.bytes_max,
        "room was kept for the endings: {}",
        status.bytes
    );
    journal.mark_shipped(status.last_seq);
    let status = journal.status(at(0));
    assert_eq!((status.depth, status.is_full), (0, false));
    journal.append(&hold(begun)).unwrap();
}

#[test]
fn a_second_process_and_another_instance_are_told_what_to_do() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let error = Journal::open(directory.path(), "one", SMALL, at(0)).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("stop that one"), "{error}");
    drop(journal);
    let error = Journal::open(directory.path(), "two", SMALL, at(0)).unwrap_err();
    assert!(error.to_string().contains("TOLLGATE_INSTANCE=one"), "{error}");
    open(&directory, 0);
}

#[test]
fn numbers_are_never_used_again() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 100);
    let first = *append_all(&journal, &[rejection(0), rejection(1)]).last().unwrap();
    journal.mark_shipped(first);
    drop(journal);

    // The clock went back, and everything shipped is gone from disk.
    let (journal, _) = open(&directory, 50);
    let second = journal.append(&rejection(2)).unwrap();
    assert!(second > first);
    drop(journal);

    // The mark is gone, too.
    fs::remove_file(directory.path().join("mark")).unwrap();
    let (journal, _) = open(&directory, 50);
    let third = journal.append(&rejection(3)).unwrap();
    assert!(third > second);
    drop(journal);

    // The whole directory is gone, and Postgres is away.
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 101);
    assert!(journal.append(&rejection(4)).unwrap() > third);
}

#[test]
fn records_numbered_below_the_mark_of_a_lost_directory_are_numbered_anew() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let wanted = [hold(0), rejection(1), hold(2), settlement(0), rejection(3)];
    let given = append_all(&journal, &wanted);
    // Ahead of everything, and between: both are marks of an earlier life while this one has shipped nothing.
    for mark in [given[2], given[4] + 1_000_000] {
        let directory = copy(&directory);
        let (journal, _) = open(&directory, 0);
        journal.adopt_mark(mark).unwrap();
        let found = records(read_all(&journal, mark, 10));
        assert_eq!(
            found.iter().map(|(_, record)| record.clone()).collect::<Vec<_>>(),
            wanted
        );
        assert!(found.iter().all(|(seq, _)| *seq > mark));
        let status = journal.status(at(9));
        assert_eq!((status.depth, status.open_holds, status.shipped_seq), (5, 1, mark));
        drop(journal);
        let (journal, recovered) = open(&directory, 0);
        assert_eq!((recovered.unshipped, recovered.open_holds.len()), (5, 1));
        assert_eq!(records(read_all(&journal, mark, 10)), found);
    }
}

#[test]
fn a_mark_ahead_after_a_lost_answer_is_taken_over() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.adopt_mark(0).unwrap();
    let seqs = append_all(&journal, &[rejection(0), rejection(1), rejection(2)]);
    journal.note_attempt(seqs[1]);
    journal.adopt_mark(seqs[1]).unwrap();
    assert_eq!(records(read_all(&journal, seqs[1], 10)), [(seqs[2], rejection(2))]);
    assert_eq!(journal.status(at(2)).depth, 1);
}

#[test]
fn a_mark_behind_after_a_restored_backup_ships_again_what_is_still_here() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings::default();
    let (journal, _) = Journal::open(directory.path(), "one", settings, at(0)).unwrap();
    journal.adopt_mark(0).unwrap();
    let seqs = append_all(&journal, &[rejection(0), rejection(1), rejection(2)]);
    journal.mark_shipped(seqs[1]);
    journal.adopt_mark(seqs[0]).unwrap();
    let status = journal.status(at(5));
    assert_eq!((status.depth, status.complete_until), (2, at(1)));
    assert_eq!(records(read_all(&journal, seqs[0], 10)).len(), 2);
}

/// The records behind `seq`, each once, by the requests that they are about.
fn requests_behind(journal: &Journal, seq: u64) -> HashSet<(bool, Uuid)> {
    records(read_all(journal, seq, 10))
        .into_iter()
        .map(|(_, record)| (matches!(record, JournalRecord::Hold(_)), record.request_id().0))
        .collect()
}

#[test]
fn a_directory_that_is_put_back_after_another_was_used_passes_over_nothing() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.adopt_mark(0).unwrap();
    let given = append_all(&journal, &[rejection(0), rejection(1), hold(2), settlement(2)]);
    journal.mark_shipped(given[0]);
    drop(journal);
    // Postgres was away; meanwhile another directory was used under this name, and shipped what is numbered by its clock.
    let other_mark = u64::try_from(at(100).timestamp_micros()).unwrap() + 7;

    let (journal, _) = open(&directory, 200);
    append_all(&journal, &[rejection(3)]);
    assert!(!journal.can_compare(other_mark));
    journal.adopt_mark(other_mark).unwrap();
    let wanted = [rejection(1), hold(2), settlement(2), rejection(3)];
    let found = records(read_all(&journal, other_mark, 10));
    assert_eq!(found.into_iter().map(|(_, record)| record).collect::<Vec<_>>(), wanted);
}

#[test]
fn a_mark_that_somebody_else_moves_under_this_name_passes_over_nothing() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.adopt_mark(0).unwrap();
    let given = append_all(&journal, &[rejection(0), rejection(1), rejection(2)]);
    journal.note_attempt(given[0]);
    journal.mark_shipped(given[0]);
    // Between our own numbers, and by no batch of ours: the clocks of the two differ.
    journal.adopt_mark(given[1]).unwrap();
    let found = records(read_all(&journal, given[1], 10));
    assert_eq!(
        found.into_iter().map(|(_, record)| record).collect::<Vec<_>>(),
        [rejection(1), rejection(2)]
    );
}

#[test]
fn an_old_copy_of_the_directory_and_a_clock_that_went_back_pass_over_nothing() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.adopt_mark(0).unwrap();
    append_all(&journal, &[rejection(0), rejection(1)]);
    let copied = copy(&directory);
    let later = append_all(&journal, &[rejection(2), rejection(3), rejection(4)]);
    let mark = later[1];
    journal.mark_shipped(mark);
    drop(journal);

    // More is written than the original had before Postgres is met: its mark lies between what is new.
    let (journal, _) = open(&copied, 0);
    let new = append_all(&journal, &[rejection(10), rejection(11), rejection(12), rejection(13)]);
    assert!(new[0] <= mark && mark < new[3], "{new:?} and {mark}");
    journal.adopt_mark(mark).unwrap();
    let found = requests_behind(&journal, mark);
    for number in 10..14 {
        assert!(found.contains(&(false, rejection(number).request_id().0)), "{number}");
    }
}

#[test]
fn a_lost_answer_of_an_earlier_life_is_believed() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.adopt_mark(0).unwrap();
    let given = append_all(&journal, &[rejection(0), rejection(1), rejection(2)]);
    drop(journal);
    let (journal, _) = open(&directory, 9);
    assert!(journal.can_compare(given[1]));
    journal.adopt_mark(given[1]).unwrap();
    assert_eq!(records(read_all(&journal, given[1], 10)), [(given[2], rejection(2))]);
}

#[test]
fn numbering_anew_that_fails_half_way_leaves_everything_and_is_done_later() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let wanted = [
        hold(0),
        rejection(1),
        rejection(2),
        settlement(0),
        hold(5),
        rejection(3),
        rejection(4),
    ];
    append_all(&journal, &wanted);
    let mark = journal.status(at(0)).next_seq + 1_000;
    // The disk does not take the second of the new segments.
    let obstacles: Vec<_> = (2..5)
        .map(|number| segment::path(directory.path(), mark + number))
        .collect();
    for obstacle in &obstacles {
        fs::create_dir(obstacle).unwrap();
    }
    journal.adopt_mark(mark).unwrap_err();
    assert_eq!(journal.status(at(0)).open_holds, 1);
    assert_eq!(requests_behind(&journal, 0).len(), wanted.len());
    for obstacle in &obstacles {
        fs::remove_dir(obstacle).unwrap();
    }
    let killed = copy(&directory);
    journal.adopt_mark(mark).unwrap();
    assert_eq!(requests_behind(&journal, mark).len(), wanted.len());
    assert_eq!(journal.status(at(0)).open_holds, 1);
    // And killed in between, the next start does it.
    let (journal, _) = open(&killed, 0);
    assert!(!journal.can_compare(mark));
    journal.adopt_mark(mark).unwrap();
    assert_eq!(requests_behind(&journal, mark).len(), wanted.len());
}

#[test]
fn a_segment_that_has_gone_astray_is_told_unless_postgres_has_it() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.adopt_mark(0).unwrap();
    append_all(&journal, &(0..12).map(rejection).collect::<Vec<_>>());
    journal.keep_mark();
    drop(journal);
    let files = segment_files(&directory);
    assert!(files.len() > 3);
    let lost = files[1]..=files[2] - 1;
    fs::remove_file(segment::path(directory.path(), files[1])).unwrap();

    let (journal, recovered) = open(&directory, 20);
    assert_eq!(recovered.missing_segments, 1);
    let ranges = |mark| {
        journal
            .holes(mark)
            .into_iter()
            .map(|hole| hole.seqs)
            .collect::<Vec<_>>()
    };
    assert_eq!(ranges(0), std::slice::from_ref(&lost));
    assert_eq!(ranges(files[1]), [files[1] + 1..=*lost.end()]);
    assert_eq!(ranges(*lost.end()), []);
    journal.adopt_mark(0).unwrap();
    assert_eq!(ranges(0), [], "it is told once");
    drop(journal);
    let (_, recovered) = open(&directory, 30);
    assert_eq!(recovered.missing_segments, 0);

    // The last one may go astray, too.
    let files = segment_files(&directory);
    let last = files[files.len() - 2];
    fs::remove_file(segment::path(directory.path(), last)).unwrap();
    let (_, recovered) = open(&directory, 40);
    assert_eq!(recovered.missing_segments, 1);
}

#[test]
fn what_a_restored_database_lacks_and_the_journal_has_deleted_is_told() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.adopt_mark(0).unwrap();
    let seqs = append_all(&journal, &(0..12).map(rejection).collect::<Vec<_>>());
    journal.mark_shipped(seqs[10]);
    let oldest = segment_files(&directory)[0];
    assert!(oldest > seqs[3]);
    let ranges = |journal: &Journal, mark| {
        journal
            .holes(mark)
            .into_iter()
            .map(|hole| hole.seqs)
            .collect::<Vec<_>>()
    };
    assert_eq!(ranges(&journal, seqs[10]), []);
    assert_eq!(ranges(&journal, seqs[3]), [seqs[3] + 1..=oldest - 1]);
    assert_eq!(ranges(&journal, oldest - 1), [], "all of it is still here");
    drop(journal);
    let (journal, _) = open(&directory, 60);
    assert_eq!(
        ranges(&journal, seqs[3]),
        [seqs[3] + 1..=oldest - 1],
        "also at the next start"
    );
    journal.adopt_mark(seqs[3]).unwrap();
    assert_eq!(ranges(&journal, seqs[3]), []);
}

#[test]
fn refusals_leave_room_for_requests_that_run() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings {
        bytes_max: 100_000,
        refusals_percent: 50,
        ..SMALL
    };
    let (journal, _) = Journal::open(directory.path(), "one", settings, at(0)).unwrap();
    let mut refused = 0;
    while journal.append(&rejection(refused)).is_ok() {
        refused += 1;
    }
    assert!(refused > 10);
    assert!(!journal.status(at(0)).is_full);
    let mut begun = 0;
    while journal.append(&hold(1_000 + begun)).is_ok() {
        begun += 1;
    }
    assert!(begun > 5, "{begun}");
    for number in 0..begun {
        journal.append(&settlement(1_000 + number)).unwrap();
    }
    assert!(journal.status(at(0)).bytes <= settings.bytes_max);
}

#[test]
fn a_segment_goes_when_it_is_shipped_and_no_hold_in_it_is_open() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let first = journal.append(&hold(0)).unwrap();
    let more: Vec<JournalRecord> = (1..6).map(rejection).collect();
    let last = *append_all(&journal, &more).last().unwrap();
    let files = segment_files(&directory);
    assert!(files.len() > 2);
    journal.mark_shipped(last);
    assert_eq!(segment_files(&directory), files, "the hold is in the oldest segment");
    let ending = journal.append(&settlement(0)).unwrap();
    journal.mark_shipped(last);
    let kept = segment_files(&directory);
    assert!(kept[0] > first, "the hold has ended");
    journal.mark_shipped(ending);
    assert_eq!(segment_files(&directory).len(), 1, "the one that is written stays");
    assert_eq!(journal.status(at(0)).depth, 0);
}

#[test]
fn a_hold_that_stays_open_does_not_keep_the_journal() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    journal.append(&hold(0)).unwrap();
    for number in 1..100 {
        let seq = journal.append(&rejection(number)).unwrap();
        journal.mark_shipped(seq);
    }
    assert!(segment_files(&directory).len() <= shipping::SEGMENTS_HELD_MAX + 2);
    drop(journal);
    let (_, recovered) = open(&directory, 0);
    assert_eq!(recovered.open_holds.len(), 1);
    assert_eq!(recovered.open_holds[0].identity.id, hold(0).request_id());
}

#[test]
fn status_tells_depth_age_and_completeness() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let status = journal.status(at(30));
    assert_eq!(
        (status.depth, status.oldest_unshipped_age, status.complete_until),
        (0, None, at(30))
    );
    append_all(&journal, &[hold(3), hold(5)]);
    let last = *append_all(&journal, &[settlement(5), rejection(20)]).last().unwrap();
    let status = journal.status(at(30));
    assert_eq!((status.depth, status.open_holds, status.last_seq), (4, 2 - 1, last));
    assert_eq!(status.oldest_unshipped_age, Some(Duration::from_secs(27)));
    assert_eq!(status.complete_until, at(3));
    journal.mark_shipped(last);
    let status = journal.status(at(30));
    assert_eq!((status.depth, status.oldest_unshipped_age), (0, None));
    assert_eq!(status.complete_until, at(3), "a hold is open");
    let ending = journal.append(&settlement(3)).unwrap();
    assert_eq!(
        journal.status(at(30)).complete_until,
        at(3),
        "its settlement is not shipped"
    );
    assert_eq!(
        journal.status(at(30)).oldest_unshipped_age,
        Some(Duration::from_secs(17))
    );
    journal.mark_shipped(ending);
    assert_eq!(journal.status(at(30)).complete_until, at(30));
}

/// A journal on a disk that can be made to refuse.
struct FailingDisk {
    parent: TempDir,
    journal: Arc<Journal>,
}

impl FailingDisk {
    fn open() -> Self {
        let parent = TempDir::new().unwrap();
        let (journal, _) = Journal::open(&parent.path().join("journal"), "one", SMALL, at(0)).unwrap();
        Self { parent, journal }
    }

    /// A file that cannot be written, in a directory where none can be made.
    fn refuse(&self) {
        let directory = self.parent.path().join("journal");
        let mut state = self.journal.state.lock();
        let path = segment::path(&directory, state.active.first_seq);
        state.file = Arc::new(File::open(path).unwrap());
        fs::rename(&directory, self.parent.path().join("away")).unwrap();
    }

    fn mend(&self) {
        fs::rename(self.parent.path().join("away"), self.parent.path().join("journal")).unwrap();
    }

    fn deferred(&self, number: u64) -> u64 {
        match self.journal.append(&settlement(number)) {
            Err(AppendError::Deferred { seq, .. }) => seq,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_disk_that_refuses_stops_new_requests_and_keeps_settlements_for_later() {
    let disk = FailingDisk::open();
    let journal = &disk.journal;
    append_all(journal, &[hold(0)]);
    disk.refuse();
    disk.deferred(0);
    assert!(matches!(journal.append(&hold(1)), Err(AppendError::Io(_))));
    assert!(
        matches!(journal.append(&settlement(900)), Err(AppendError::Io(_))),
        "nobody holds for this one"
    );
    assert!(journal.status(at(0)).last_error.is_some());
    assert_eq!(journal.status(at(0)).open_holds, 1);
    disk.mend();
    journal.append(&hold(1)).unwrap();
    let status = journal.status(at(0));
    assert_eq!((status.last_error, status.open_holds, status.depth), (None, 1, 3));
    let found: Vec<_> = records(read_all(journal, 0, 10))
        .into_iter()
        .map(|(_, record)| record)
        .collect();
    assert_eq!(found, [hold(0), settlement(0), hold(1)]);
}

#[test]
fn a_settlement_that_waits_for_the_disk_gets_the_number_it_was_promised() {
    let disk = FailingDisk::open();
    let journal = &disk.journal;
    append_all(journal, &[hold(0), hold(1), hold(2), hold(3)]);
    disk.refuse();
    let first = disk.deferred(0);
    let second = disk.deferred(1);
    assert_eq!(journal.last_ending_seq(), second);
    disk.mend();
    // An ending that comes now does not overtake the two.
    let third = journal.append(&settlement(2)).unwrap();
    let after = journal.append(&hold(4)).unwrap();
    let found = records(read_all(journal, first - 1, 10));
    assert_eq!(
        found,
        [
            (first, settlement(0)),
            (second, settlement(1)),
            (third, settlement(2)),
            (after, hold(4))
        ]
    );
    assert_eq!(journal.last_ending_seq(), third);
}

#[test]
fn an_old_hold_is_not_carried_forward_into_a_promised_number() {
    let disk = FailingDisk::open();
    let journal = &disk.journal;
    append_all(journal, &[hold(0), hold(1)]);
    let many: Vec<JournalRecord> = (2..60).map(rejection).collect();
    let last = *append_all(journal, &many).last().unwrap();
    disk.refuse();
    let promised = disk.deferred(1);
    disk.mend();
    journal.mark_shipped(last);
    journal.retry_owed();
    assert_eq!(
        records(read_all(journal, promised - 1, 1))[0],
        (promised, settlement(1))
    );
}

#[test]
fn marks_cannot_be_compared_until_they_have_passed_what_was_numbered_anew() {
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(&directory, 0);
    let given = append_all(&journal, &[hold(0), settlement(0)]);
    let foreign = given[1] + 1_000;
    assert!(journal.can_compare(given[0] - 1), "a mark below is of no other life");
    assert!(!journal.can_compare(given[0]), "this one may be");
    assert!(!journal.can_compare(foreign));
    journal.adopt_mark(foreign).unwrap();
    assert!(!journal.can_compare(foreign), "it contains neither of the two");
    let last = journal.status(at(0)).last_seq;
    assert!(!journal.can_compare(last - 1));
    journal.note_attempt(last);
    assert!(journal.can_compare(last));
    assert_eq!(journal.last_ending_seq(), last);
}

/// The longest texts that a caller and a provider can bring into an entry.
fn at_its_longest(record: JournalRecord) -> JournalRecord {
    let lengthen = |identity: &mut domain::ledger::Identity| {
        identity.tags = (0..16)
            .map(|number| (format!("{number:064}"), "\u{1F600}".repeat(256)))
            .collect();
        identity.user_id = Some("\u{1F600}".repeat(domain::ledger::USER_ID_CHARS_MAX));
        identity.user_agent = Some("\u{1F600}".repeat(domain::ledger::USER_AGENT_CHARS_MAX));
    };
    match record {
        JournalRecord::Hold(mut hold) => {
            lengthen(&mut hold.identity);
            JournalRecord::Hold(hold)
        }
        JournalRecord::Settlement(mut settlement) => {
            lengthen(&mut settlement.identity);
            settlement.upstream_model = Some("m".repeat(100));
            settlement.upstream_request_id = Some("r".repeat(200));
            let attempt = domain::ledger::Attempt {
                upstream_id: domain::ids::UpstreamId(uuid::Uuid::max()),
                upstream_model: "m".repeat(100),
                status: Some(503),
                error: Some("connection reset by the provider".to_owned()),
                first_byte_ms: i64::MAX,
            };
            settlement.attempts = vec![attempt; 4];
            settlement.cost_nanos = domain::money::Nanos(i64::MAX);
            settlement.overrun_nanos = domain::money::Nanos(i64::MAX);
            settlement.usage.input_fresh_tokens = u64::MAX;
            settlement.usage.output_tokens = u64::MAX;
            JournalRecord::Settlement(settlement)
        }
        rejection => rejection,
    }
}

#[test]
fn room_is_kept_for_the_longest_endings_across_a_restart() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings {
        bytes_max: 500_000,
        ..SMALL
    };
    let reopen = || Journal::open(directory.path(), "one", settings, at(0)).unwrap().0;
    let mut journal = reopen();
    let mut begun = 0;
    while journal.append(&at_its_longest(hold(begun))).is_ok() {
        begun += 1;
        if begun == 3 {
            drop(journal);
            journal = reopen();
        }
    }
    assert!(begun > 5);
    for number in 0..begun {
        journal.append(&at_its_longest(settlement(number))).unwrap();
    }
    let bytes = journal.status(at(0)).bytes;
    assert!(bytes <= settings.bytes_max, "{bytes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[expect(
    clippy::await_holding_lock,
    reason = "this lock stands for a disk that takes its time"
)]
async fn under_each_other_tasks_run_while_the_disk_takes_its_time() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings {
        fsync: FsyncPolicy::Each,
        ..SMALL
    };
    let (journal, _) = Journal::open(directory.path(), "one", settings, at(0)).unwrap();
    let slow = journal.synced_seq.lock();
    let appending = tokio::spawn({
        let journal = Arc::clone(&journal);
        async move { journal.append(&rejection(0)) }
    });
    while journal.status(at(0)).depth == 0 {
        tokio::task::yield_now().await;
    }
    let other = tokio::spawn(async {});
    // The runtime's own clock might stand still, too.
    let patience = std::time::Instant::now() + Duration::from_secs(10);
    while !other.is_finished() && std::time::Instant::now() < patience {
        tokio::task::yield_now().await;
    }
    let has_run = other.is_finished();
    drop(slow);
    assert!(has_run, "another task runs meanwhile");
    appending.await.unwrap().unwrap();
}

#[tokio::test]
async fn closed_segments_reach_the_disk_with_the_next_sync() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings {
        fsync: FsyncPolicy::Interval,
        ..SMALL
    };
    let (journal, _) = Journal::open(directory.path(), "one", settings, at(0)).unwrap();
    for number in 0..100 {
        journal.append(&rejection(number)).unwrap();
        assert!(journal.state.lock().unsynced.len() <= FILES_UNSYNCED_MAX);
    }
    let waiting = journal.state.lock().unsynced.len();
    assert!(waiting > 0, "more than one segment was filled");
    let stop = CancellationToken::new();
    stop.cancel();
    journal.keep_synced(&stop).await;
    let state = journal.state.lock();
    assert!(state.unsynced.is_empty() && !state.has_new_names);
    assert_eq!(*journal.synced_seq.lock(), state.next_seq - 1);
}

#[test]
fn under_each_the_disk_has_it_before_append_returns() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings {
        fsync: FsyncPolicy::Each,
        ..SMALL
    };
    let (journal, _) = Journal::open(directory.path(), "one", settings, at(0)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let journal = &journal;
            scope.spawn(move || {
                for number in 0..20 {
                    let seq = journal.append(&rejection(writer * 100 + number)).unwrap();
                    assert!(*journal.synced_seq.lock() >= seq);
                }
            });
        }
    });
    let found = records(read_all(&journal, 0, 10));
    assert_eq!(found.len(), 80);
    assert_eq!(found.iter().map(|(seq, _)| seq).collect::<HashSet<_>>().len(), 80);
}

#[tokio::test]
async fn under_interval_the_disk_is_asked_in_time() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings {
        fsync: FsyncPolicy::Interval,
        fsync_interval: Duration::from_millis(1),
        ..SMALL
    };
    let (journal, _) = Journal::open(directory.path(), "one", settings, at(0)).unwrap();
    let seq = journal.append(&rejection(0)).unwrap();
    assert!(*journal.synced_seq.lock() < seq);
    let stop = CancellationToken::new();
    let syncing = journal.keep_synced(&stop);
    let asking = async {
        while *journal.synced_seq.lock() < seq {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    tokio::join!(syncing, asking);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is appended is read, once, in order, across segments, restarts and deletions.
    #[test]
    fn what_is_appended_is_read(
        steps in prop::collection::vec(0_u8..8, 1..120),
        segment_bytes in 500_u64..6_000,
        records_max in 1_usize..9,
    ) {
        let directory = TempDir::new().unwrap();
        let settings = JournalSettings { segment_bytes, ..SMALL };
        let reopen = |number| Journal::open(directory.path(), "one", settings, at(number)).unwrap();
        let (mut journal, _) = reopen(0);
        let (mut written, mut read, mut holds) = (Vec::new(), Vec::new(), Vec::new());
        for (number, step) in (0_u64..).zip(steps) {
            let record = match step {
                0..=2 => {
                    holds.push(number);
                    Some(hold(number))
                }
                3..=4 => (!holds.is_empty()).then(|| settlement(holds.remove(number as usize % holds.len()))),
                5 => Some(rejection(number)),
                6 => {
                    let from = read.last().map_or(0, |(seq, _)| *seq);
                    let batch = records(journal.read_after(from, records_max, 1_500).unwrap());
                    if let Some((seq, _)) = batch.last() {
                        journal.mark_shipped(*seq);
                    }
                    read.extend(batch);
                    None
                }
                _ => {
                    drop(journal);
                    let (again, recovered) = reopen(number);
                    journal = again;
                    let open: Vec<_> = recovered.open_holds.iter().map(|hold| hold.identity.id).collect();
                    prop_assert_eq!(open.len(), holds.len());
                    prop_assert!(holds.iter().all(|&number| open.contains(&hold(number).request_id())));
                    None
                }
            };
            if let Some(record) = record {
                written.push((journal.append(&record).unwrap(), record));
            }
            let status = journal.status(at(number));
            prop_assert_eq!(status.open_holds, holds.len() as u64);
        }
        let from = read.last().map_or(0, |(seq, _)| *seq);
        read.extend(records(read_all(&journal, from, records_max)));
        // A hold that is carried forward is read again; its first reading is in its place.
        let mut seen = HashSet::new();
        read.retain(|(_, record)| {
            let is_hold = matches!(record, JournalRecord::Hold(_));
            seen.insert((is_hold, record.request_id()))
        });
        prop_assert_eq!(read, written);
    }
}
