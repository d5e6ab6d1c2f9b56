//! Files of a folder over real connections: what is reached and what is not, conditions, ranges, variants, listings,
//! files that change while they are sent.

#![forbid(unsafe_code)]

#[path = "files/folder.rs"]
mod folder;
#[path = "files/https.rs"]
mod https;
#[path = "files/reach.rs"]
mod reach;
#[path = "files/representations.rs"]
mod representations;
#[expect(dead_code, reason = "other tests use the rest of it")]
mod support;
