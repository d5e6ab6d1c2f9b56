//! System calls that fail, on io_uring. It makes few: what is little goes by the ring, and whatever an operation there
//! comes to is for the driver's own tests. `faults.rs` says how it is done, and which errors are left out.
//!
//! Left out here as well is an error from `io_uring_enter` that the kernel gives to who uses it wrongly, but for the one
//! test of a loop that cannot go on.

use crate::faults::{ask_under, assert_ends_where_it_cannot_wait, assert_no_start, can_trace};
use crate::program::can_use_uring;

/// Nothing was submitted then, and nothing is lost: the loop asks again.
#[test]
fn a_failed_ring_enter_is_retried() {
    // Now and then, and several times in a row. What happens as a matter of course may do so every second time.
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
        // Which operations there are, and the ring of provided buffers.
        "io_uring_register:error=EINVAL:when=1",
        "io_uring_register:error=ENOMEM:when=2",
    ] {
        let line = assert_no_start("uring", fault);
        assert!(line.contains("io_uring") && line.contains("choose epoll"), "{fault}: {line}");
    }
}

/// Says how many connections broke, or `None` if there is no strace or no io_uring.
fn ask(faults: &[&str]) -> Option<usize> {
    if can_use_uring() { ask_under("uring", faults) } else { None }
}
