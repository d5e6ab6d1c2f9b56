//! Issuance against a small authority of the tests' own. `interop/acme.py` has the same with pebble.

mod authority;
mod hostile;
mod issuance;
mod restarts;
mod support;
