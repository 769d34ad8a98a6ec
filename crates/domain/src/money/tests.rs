//! Amounts survive being written and read, and round as stated.

use proptest::prelude::*;

use super::{Nanos, ParseAmountError};

#[test]
fn amounts_are_written_with_at_least_two_places() {
    assert_eq!(Nanos(12_500_000_000).to_string(), "12.50");
    assert_eq!(Nanos(125).to_string(), "0.000000125");
    assert_eq!(Nanos(-1).to_string(), "-0.000000001");
    assert_eq!(Nanos(0).to_string(), "0.00");
}

#[test]
fn rounding_is_half_away_from_zero() {
    assert_eq!(Nanos(1_005_000_000).to_decimal(2), "1.01");
    assert_eq!(Nanos(-1_005_000_000).to_decimal(2), "-1.01");
    assert_eq!(Nanos(4_999_999).to_decimal(2), "0.00");
    assert_eq!(Nanos(-4_999_999).to_decimal(2), "0.00");
}

#[test]
fn bad_amounts_say_why() {
    assert_eq!("ten".parse::<Nanos>(), Err(ParseAmountError::NotANumber));
    assert_eq!("".parse::<Nanos>(), Err(ParseAmountError::NotANumber));
    assert_eq!("1,5".parse::<Nanos>(), Err(ParseAmountError::NotANumber));
    assert_eq!("0.0000000001".parse::<Nanos>(), Err(ParseAmountError::TooPrecise));
    assert_eq!("99999999999".parse::<Nanos>(), Err(ParseAmountError::TooLarge));
}

proptest! {
    #[test]
    fn written_amounts_read_back_exactly(nanos in -i64::MAX..i64::MAX) {
        prop_assert_eq!(Nanos(nanos).to_string().parse::<Nanos>(), Ok(Nanos(nanos)));
    }
}
