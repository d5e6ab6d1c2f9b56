//! Files of a folder over real connections: what is reached and what is not, conditions, ranges, variants, listings,
//! files that change while they are sent.

mod folder;
mod https;
mod reach;
mod representations;
