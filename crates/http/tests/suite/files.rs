//! Files of a folder over real connections: reachable and unreachable files, conditions, ranges, variants, listings,
//! files that change while they are sent.

mod folder;
mod https;
mod reach;
mod representations;
