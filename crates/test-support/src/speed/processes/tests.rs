//! What Linux says of processes, as text and of this one.

use std::collections::HashMap;

use super::{Memory, Stat, cpu_time, descend, memory, own_cpu_time};

#[test]
fn reads_the_times_behind_any_name() {
    for name in ["nginx", "postgres: a b", "odd) S 7 (name", ""] {
        let text =
            format!("4242 ({name}) S 17 4242 4242 0 -1 4194560 900 80 1 0 120 30 4 2 20 0 5 0 8712 1024 77 18446");
        let stat = Stat {
            parent_id: 17,
            own_ticks: 150,
            waited_ticks: 6,
        };
        assert_eq!(Stat::parse(&text), Some(stat), "{name:?}");
    }
    for wrong in [
        "",
        "4242 (nginx) S 17",
        "4242 nginx S 17 0 0",
        "1 (a) S b 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ] {
        assert_eq!(Stat::parse(wrong), None, "{wrong:?}");
    }
}

#[test]
fn finds_all_below_a_process_and_nobody_else() {
    let of = |parent_id| Stat {
        parent_id,
        own_ticks: 1,
        waited_ticks: 0,
    };
    let stats = HashMap::from([
        (1, of(0)),
        (10, of(1)),
        (11, of(10)),
        (12, of(11)),
        (20, of(1)),
        (21, of(20)),
    ]);
    let mut found: Vec<u32> = descend(10, stats[&10], &stats).into_iter().map(|(id, _)| id).collect();
    found.sort_unstable();
    assert_eq!(found, [10, 11, 12]);
}

#[test]
fn reads_what_is_in_memory() {
    let text = "Name:\tnginx\nVmPeak:\t   70000 kB\nVmHWM:\t   12344 kB\nVmRSS:\t    9876 kB\nThreads:\t1\n";
    let wanted = Memory {
        resident_kib: 9_876,
        resident_kib_max: 12_344,
    };
    assert_eq!(Memory::parse(text), wanted);
    // As of a process that has ended and was not waited for.
    assert_eq!(Memory::parse("Name:\tnginx\nState:\tZ (zombie)\n"), Memory::default());
}

#[test]
fn sees_this_process() {
    let id = std::process::id();
    let before = own_cpu_time().expect("it runs");
    let mut sum = 0_u64;
    while own_cpu_time().expect("it runs") == before {
        sum = (0..100_000).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
    }
    assert!(cpu_time(id).expect("it runs") > before);
    let memory = memory(id).expect("it runs");
    assert!(memory.resident_kib > 0 && memory.resident_kib_max >= memory.resident_kib);
    assert!(cpu_time(u32::MAX).is_err());
}
