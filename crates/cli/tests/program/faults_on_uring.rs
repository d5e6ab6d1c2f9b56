//! Fault injection into system calls, on io_uring. There are few calls: small operations go through the ring, and the
//! driver's own tests cover failed operations there. `faults.rs` describes the method, and which errors are left out.
//!
//! Also left out are errors that `io_uring_enter` returns for wrong arguments, except in the one test of a loop that
//! cannot continue.

use crate::faults::{ask_under, assert_ends_where_it_cannot_wait, assert_no_start, can_trace};
use crate::support::program::can_use_uring;

/// On an error nothing was submitted, and nothing is lost: the loop retries.
#[test]
fn a_failed_ring_enter_is_retried() {
    // Occasionally, and several times in a row. Errors that are common in practice may occur every second time.
    let (now_and_then, often) = (&["3+5", "4..9"][..], &["3+5", "4..9", "2+2"][..]);
    for (error, whens) in [("EINTR", often), ("EBUSY", often), ("EAGAIN", now_and_then), ("ENOMEM", now_and_then)] {
        for when in whens {
            let broken = ask(&[&format!("io_uring_enter:error={error}:when={when}")]);
            assert!(broken.is_none_or(|broken| broken == 0), "{error} {when}: {broken:?} broke");
        }
    }
}

#[test]
fn a_failed_large_receive_closes_its_connection_only() {
    for error in ["ECONNRESET", "ETIMEDOUT", "EHOSTUNREACH", "ENOMEM", "ENOBUFS"] {
        let broken = ask(&[&format!("recvfrom:error={error}:when=3+7")]);
        assert!(broken.is_none_or(|broken| broken > 0), "{error} broke nothing");
    }
}

#[test]
fn a_failed_large_send_closes_its_connection_only() {
    for error in ["EPIPE", "ECONNRESET", "ENOBUFS", "ENOMEM", "EHOSTUNREACH"] {
        let broken = ask(&[&format!("sendmsg:error={error}:when=1+7")]);
        assert!(broken.is_none_or(|broken| broken > 0), "{error} broke nothing");
    }
}

#[test]
fn an_interrupted_call_breaks_no_connection() {
    for call in ["recvfrom", "sendmsg"] {
        let broken = ask(&[&format!("{call}:error=EINTR:when=1+2")]);
        assert!(broken.is_none_or(|broken| broken == 0), "{call}: {broken:?} broke");
    }
}

#[test]
fn a_failed_shutdown_breaks_no_connection() {
    let broken = ask(&["shutdown:error=ENOTCONN:when=1+2"]);
    assert!(broken.is_none_or(|broken| broken == 0), "{broken:?} broke");
}

#[test]
fn the_server_survives_all_faults_at_once() {
    ask(&[
        "io_uring_enter:error=EINTR:when=2+3",
        "recvfrom:error=ECONNRESET:when=2+5",
        "sendmsg:error=ENOBUFS:when=3+11",
        "shutdown:error=ENOTCONN:when=1+2",
    ]);
}

#[test]
fn a_loop_that_cannot_enter_its_ring_ends_the_program_with_an_error() {
    if can_trace() && can_use_uring() {
        assert_ends_where_it_cannot_wait("uring", "io_uring_enter:error=EINVAL:when=3+");
    }
}

#[test]
fn a_failed_start_is_one_error_line_and_exit_code_2() {
    if !can_trace() || !can_use_uring() {
        return;
    }
    for fault in [
        "io_uring_setup:error=EMFILE:when=1",
        "io_uring_setup:error=ENOMEM:when=1",
        // The probe for operations, and the registration of the provided buffer ring.
        "io_uring_register:error=EINVAL:when=1",
        "io_uring_register:error=ENOMEM:when=2",
    ] {
        let line = assert_no_start("uring", fault);
        assert!(line.contains("io_uring") && line.contains("choose epoll"), "{fault}: {line}");
    }
}

/// Returns how many connections broke, or `None` without strace or io_uring.
fn ask(faults: &[&str]) -> Option<usize> {
    if can_use_uring() { ask_under("uring", faults) } else { None }
}
