//! No more is taken than there is, and all of it comes back.

use bytes::Bytes;

use super::{NoRoom, Room};

#[test]
fn room_is_taken_as_bytes_arrive_and_comes_back_with_the_last_of_them() {
    let room = Room::of(10);
    let mut one = room.take_none();
    let mut other = room.take_none();
    assert_eq!((one.grow(6), other.grow(4)), (Ok(()), Ok(())));
    assert_eq!((one.grow(1), other.grow(1)), (Err(NoRoom), Err(NoRoom)));
    drop(one);
    assert_eq!((other.grow(6), other.grow(1)), (Ok(()), Err(NoRoom)));

    let answer = other.guard(Bytes::from_static(b"0123456789"));
    let piece = answer.slice(3..5);
    drop(answer);
    assert_eq!(room.take_none().grow(1), Err(NoRoom));
    assert_eq!(piece, b"34"[..]);
    drop(piece);
    assert_eq!(room.take_none().grow(10), Ok(()));
}

#[test]
fn nothing_is_taken_by_what_does_not_fit() {
    let room = Room::of(10);
    assert_eq!(room.take_none().grow(usize::MAX), Err(NoRoom));
    let mut taken = room.take_none();
    assert_eq!(taken.grow(11), Err(NoRoom));
    assert_eq!(taken.grow(10), Ok(()));
}
