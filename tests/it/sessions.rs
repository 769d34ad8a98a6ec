//! Sessions of the console, kept in Postgres.

use std::sync::Arc;

use chrono::{Duration, Utc};
use control::people::{Kept, PersonDraft};
use control::sessions::{PERSON_FIELD, Sessions};
use control::{Actor, Control, SystemRandom};
use domain::people::Role;
use serde_json::json;
use store::Store;
use store::people::Person;
use store::sealing::SecretKey;
use test_support::postgres::{TestDatabase, database};
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::{Id, Record};

const SYSTEM: Actor = Actor::System { name: "test" };

struct Console {
    database: TestDatabase,
    store: Store,
    control: Control,
    sessions: Sessions,
    person: Person,
}

async fn console() -> Console {
    let database = database().await;
    let store = Store::connect_lazily(database.url()).unwrap();
    let control = Control::new(store.clone(), SecretKey::from_bytes([7; 32]), Arc::new(SystemRandom));
    let draft = PersonDraft {
        name: "Ada".to_owned(),
        email: "ada@example.com".to_owned(),
        role: Role::Auditor,
        tenant_id: None,
    };
    let person = control.invite_person(&SYSTEM, &draft, Utc::now()).await.unwrap().person;
    Console {
        database,
        store,
        sessions: control.sessions(),
        control,
        person,
    }
}

impl Console {
    fn record(&self, lasts: Duration) -> Record {
        let ends = (Utc::now() + lasts).timestamp();
        Record {
            id: Id::default(),
            data: [
                (PERSON_FIELD.to_owned(), json!(self.person.id)),
                ("shown_once".to_owned(), json!("a secret text")),
            ]
            .into(),
            expiry_date: time::OffsetDateTime::from_unix_timestamp(ends).unwrap(),
        }
    }
}

#[tokio::test]
async fn a_session_is_kept_changed_and_deleted() {
    let console = console().await;
    let sessions = &console.sessions;
    let mut record = console.record(Duration::hours(1));
    sessions.create(&mut record).await.unwrap();
    assert_eq!(sessions.load(&record.id).await.unwrap().as_ref(), Some(&record));
    record.data.insert("more".to_owned(), json!([1, 2]));
    sessions.save(&record).await.unwrap();
    assert_eq!(sessions.load(&record.id).await.unwrap().as_ref(), Some(&record));
    sessions.delete(&record.id).await.unwrap();
    assert_eq!(sessions.load(&record.id).await.unwrap(), None);
    // A request that was under way when the person signed out does not bring the session back.
    sessions.save(&record).await.unwrap();
    assert_eq!(sessions.load(&record.id).await.unwrap(), None);
}

#[tokio::test]
async fn an_id_that_is_taken_is_drawn_again() {
    let console = console().await;
    let mut one = console.record(Duration::hours(1));
    console.sessions.create(&mut one).await.unwrap();
    let mut two = console.record(Duration::hours(1));
    two.id = one.id;
    console.sessions.create(&mut two).await.unwrap();
    assert_ne!(one.id, two.id);
}

#[tokio::test]
async fn an_expired_session_does_not_load_and_is_deleted_in_batches() {
    let console = console().await;
    let mut over = console.record(Duration::seconds(-1));
    let mut alive = console.record(Duration::hours(1));
    console.sessions.create(&mut over).await.unwrap();
    console.sessions.create(&mut alive).await.unwrap();
    assert_eq!(console.sessions.load(&over.id).await.unwrap(), None);
    assert_eq!(console.store.delete_expired_sessions(Utc::now()).await.unwrap(), 1);
    assert!(console.sessions.load(&alive.id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_session_ends_with_its_person() {
    let console = console().await;
    let mut record = console.record(Duration::hours(1));
    console.sessions.create(&mut record).await.unwrap();
    let person = &console.person;
    let now = Utc::now();
    console
        .control
        .disable_person(&SYSTEM, person.id, person.version, Kept::default(), now)
        .await
        .unwrap();
    assert_eq!(console.sessions.load(&record.id).await.unwrap(), None);
    // Not even one that is made in the same moment lets the person in.
    let mut another = console.record(Duration::hours(1));
    console.sessions.create(&mut another).await.unwrap();
    assert_eq!(console.sessions.load(&another.id).await.unwrap(), None);
}

#[tokio::test]
async fn neither_a_sessions_id_nor_its_data_can_be_read_in_the_database() {
    let console = console().await;
    let mut record = console.record(Duration::hours(1));
    console.sessions.create(&mut record).await.unwrap();
    let mut connection = console.database.connect().await;
    let text: String = sqlx::query_scalar("select id || ' ' || encode(data, 'escape') from sessions")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(!text.contains(&record.id.to_string()), "{text}");
    assert!(!text.contains("a secret text"), "{text}");
    // Under another secret key the session is as good as none.
    let other = Sessions::new(
        console.store.clone(),
        SecretKey::from_bytes([8; 32]),
        Arc::new(SystemRandom),
    );
    assert_eq!(other.load(&record.id).await.unwrap(), None);
}
