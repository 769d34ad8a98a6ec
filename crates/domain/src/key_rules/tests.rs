//! What somebody above has made narrower stays so for the owner, and what the rules confine is within them.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use proptest::prelude::*;

use super::{KeyBounds, KeyPowers, KeyRules};
use crate::priority::Priority;

fn at(days: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + days * 86_400, 0).expect("in range")
}

fn models() -> impl Strategy<Value = Option<Vec<String>>> {
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    prop::option::of(prop::sample::subsequence(names, 1..=3))
}

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(Priority::ALL.to_vec())
}

fn powers() -> impl Strategy<Value = KeyPowers> {
    (priority(), models(), prop::option::of(1_i64..1_000)).prop_map(|(priority, models, end)| KeyPowers {
        priority,
        models,
        expires_at: end.map(at),
    })
}

fn is_allowed(bounds: &KeyBounds, powers: &KeyPowers) -> bool {
    bounds.priority.is_none_or(|most| powers.priority <= most)
        && bounds.allow_models(powers.models.as_deref())
        && bounds.allow_end(powers.expires_at)
}

fn with_models(names: &[&str]) -> KeyPowers {
    KeyPowers {
        priority: Priority::Default,
        models: Some(names.iter().map(ToString::to_string).collect()),
        expires_at: None,
    }
}

#[test]
fn only_what_was_narrowed_is_bounded() {
    let free = KeyPowers {
        models: None,
        ..with_models(&[])
    };
    let bounds = KeyBounds::default().set_by_superior(Some(&free), &with_models(&["a"]));
    assert_eq!(bounds.models, Some(vec!["a".to_owned()]));
    assert_eq!((bounds.priority, bounds.expires_at), (None, None));
    assert!(!bounds.allow_models(None));
    let widened = bounds
        .clone()
        .set_by_superior(Some(&with_models(&["a"])), &with_models(&["a", "b"]));
    assert!(widened.allow_models(Some(&["b".to_owned()])));
    let freed = bounds.set_by_superior(Some(&with_models(&["a"])), &free);
    assert_eq!(freed, KeyBounds::default());
}

proptest! {
    #[test]
    fn the_owner_never_gets_back_what_was_narrowed(steps in prop::collection::vec((any::<bool>(), powers()), 1..12), first in powers()) {
        // Superiors set what they like; the owner whatever the bounds allow.
        let (mut bounds, mut now) = (KeyBounds::default(), first);
        for (is_superior, wanted) in steps {
            if is_superior {
                bounds = bounds.set_by_superior(Some(&now), &wanted);
                prop_assert!(is_allowed(&bounds, &wanted), "what a superior sets is within the bounds");
                if wanted.priority < now.priority {
                    prop_assert_eq!(bounds.priority, Some(wanted.priority));
                }
                if wanted.models.is_some() && now.models.is_none() {
                    prop_assert_eq!(&bounds.models, &wanted.models);
                }
                if wanted.expires_at.is_some() && now.expires_at.is_none() {
                    prop_assert_eq!(bounds.expires_at, wanted.expires_at);
                }
                now = wanted;
            } else if is_allowed(&bounds, &wanted) {
                now = wanted;
            }
            prop_assert!(is_allowed(&bounds, &now));
        }
    }

    #[test]
    fn what_is_confined_is_within_the_rules_and_within_what_it_was(
        powers in powers(),
        months in prop::option::of(1_u32..24),
        ceiling in prop::option::of(priority()),
        models in models(),
    ) {
        let rules = KeyRules { keys_per_person: None, months_max: months, priority_ceiling: ceiling, models };
        let confined = rules.confine(powers.clone(), at(0), Tz::UTC);
        prop_assert!(confined.priority <= powers.priority);
        prop_assert!(ceiling.is_none_or(|most| confined.priority <= most));
        let was = KeyBounds { priority: None, models: powers.models.clone(), expires_at: powers.expires_at };
        prop_assert!(is_allowed(&was, &confined));
        let latest = KeyBounds { expires_at: rules.latest_end(at(0), Tz::UTC), ..KeyBounds::default() };
        prop_assert!(is_allowed(&latest, &confined));
        prop_assert_eq!(rules.confine(confined.clone(), at(0), Tz::UTC), confined);
    }
}
