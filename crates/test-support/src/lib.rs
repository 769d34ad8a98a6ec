//! Builders and real servers for tests.

pub mod booked;
pub mod clock;
pub mod console;
pub mod cut;
pub mod fleet;
pub mod html;
pub mod http;
pub mod installation;
pub mod instance;
pub mod load;
pub mod postgres;
pub mod program;
pub mod speed;
pub mod tollgate;
