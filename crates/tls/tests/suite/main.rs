//! TLS connections of both roles: against each other, against rustls as it is, and against bytes that no client sends.

mod authorities;
mod certificates;
mod challenges;
mod copies;
mod crowd;
mod ends;
mod fragments;
mod handshakes;
mod hostile;
mod network;
mod resumption;
mod support;
mod switching;
