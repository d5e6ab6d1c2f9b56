//! Resources that the system refuses: the driver returns an error or works without them, and never hangs.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_buffer::Pool;
use tidegate_sys::uring::Uring;
use tidegate_sys::{Address, Operation};

use crate::driver::harness::{Family, Harness, Report, any_port, read};
use crate::driver::which::{Which, open_descriptors};

/// Leaves room for `count` more descriptors.
fn leave_descriptors(count: usize) {
    let is_free = |number: &u64| std::fs::read_link(format!("/proc/self/fd/{number}")).is_err();
    let current = (0..).filter(is_free).nth(count);
    setrlimit(Resource::Nofile, Rlimit { current, maximum: getrlimit(Resource::Nofile).maximum }).unwrap();
}

pub(crate) fn creating_a_driver_without_descriptors_fails_and_leaks_nothing(driver: Which) {
    driver.alone("limits::creating_a_driver_without_descriptors_fails_and_leaks_nothing", || {
        let (limit, descriptors) = (getrlimit(Resource::Nofile), open_descriptors());
        for room in 0..DESCRIPTORS_MAX {
            leave_descriptors(room);
            let pool = Pool::new();
            let made = driver.make(&pool).map(drop);
            setrlimit(Resource::Nofile, limit).unwrap();
            assert_eq!(pool.ledger().used(), 0);
            assert_eq!(open_descriptors(), descriptors);
            match made {
                Ok(()) => return assert!(room > 0),
                Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{error}"),
            }
        }
        panic!("it needs more than {DESCRIPTORS_MAX} descriptors");
    });
}

pub(crate) fn accepting_stops_when_descriptors_run_out_and_resumes_on_request(driver: Which) {
    driver.alone("limits::accepting_stops_when_descriptors_run_out_and_resumes_on_request", || {
        let mut harness = Harness::on(driver);
        let (listener, address) = harness.listen(&any_port());
        let limit = getrlimit(Resource::Nofile);
        let clients: Vec<_> = (0..10).map(|_| TcpStream::connect(address.ip().unwrap()).unwrap()).collect();
        let (full, mut peers) = (Report::AcceptFailed(Some(Errno::MFILE.raw_os_error())), Vec::new());
        leave_descriptors(3);
        while peers.len() < 9 {
            let reports = harness.until_report(listener, &full);
            assert_eq!(reports, [Report::Accepted, Report::Accepted, Report::Accepted, full.clone()]);
            harness.assert_quiet();
            peers.extend(harness.accepted.drain(..).map(|(_, accepted)| accepted.peer));
            // The accepted sockets are closed, so there are descriptors again.
            harness.submit(listener, Operation::Accept(true));
        }
        peers.push(harness.until_accepted().1.peer);
        setrlimit(Resource::Nofile, limit).unwrap();
        let expected: Vec<_> = clients.iter().map(|client| Address::Ip(client.local_addr().unwrap())).collect();
        assert_eq!(peers, expected);
    });
}

pub(crate) fn connect_without_descriptors_fails_and_other_sockets_continue(driver: Which) {
    driver.alone("limits::connect_without_descriptors_fails_and_other_sockets_continue", || {
        let mut harness = Harness::on(driver);
        let (other, mut peer) = harness.pair(Family::Tcp);
        harness.receive(other, true);
        let (token, address) = (harness.token(), any_port());
        leave_descriptors(0);
        harness.submit(token, Operation::Connect { address: &address, local: None, options: &Default::default() });
        assert!(matches!(harness.take(token)[..], [Report::Connected(Err(_))]));
        harness.close(token, false);
        peer.write_all(b"still here").unwrap();
        assert_eq!(harness.until_received(other, 10), b"still here");
        harness.assert_quiet();
    });
}

/// Kernels before 5.12 count the memory of rings against this limit, for unprivileged users.
pub(crate) fn without_locked_memory_a_driver_works_or_returns_an_error(driver: Which) {
    driver.alone_unprivileged("limits::without_locked_memory_a_driver_works_or_returns_an_error", || {
        setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
        let descriptors = open_descriptors();
        if let Err(error) = driver.make(&Pool::new()) {
            assert!(matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::PermissionDenied), "{error}");
            assert_eq!(open_descriptors(), descriptors);
            return println!("the driver needs locked memory: {error}");
        }
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(Family::Tcp);
        harness.receive(token, true);
        peer.write_all(&[7; 50_000]).unwrap();
        assert_eq!(harness.until_received(token, 50_000), [7; 50_000]);
        harness.close(token, false);
        assert_eq!(read(&peer, usize::MAX), b"");
    });
}

/// As in a sandbox, or on a kernel that was built without io_uring.
pub(crate) fn only_the_io_uring_driver_fails_where_io_uring_is_refused(driver: Which) {
    driver.alone("limits::only_the_io_uring_driver_fails_where_io_uring_is_refused", || {
        let descriptors = open_descriptors();
        let refusals = [
            (Errno::NOSYS, ErrorKind::Unsupported),
            (Errno::PERM, ErrorKind::PermissionDenied),
            (Errno::NOMEM, ErrorKind::OutOfMemory),
        ];
        for (errno, kind) in refusals {
            refuse_io_uring(errno);
            let (made, probed) = (driver.make(&Pool::new()).map(drop), Uring::probe());
            assert_eq!(probed.unwrap_err().kind(), kind);
            assert_eq!(made.map_err(|error| error.kind()), if driver == Which::Epoll { Ok(()) } else { Err(kind) });
        }
        assert_eq!(open_descriptors(), descriptors);
    });
}

/// Makes `io_uring_setup` of this thread fail with an error from now on.
fn refuse_io_uring(errno: Errno) {
    let step = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        // The data that the filter reads begins with the number of the system call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_io_uring_setup as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | errno.raw_os_error() as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the call passes numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the kernel copies the filter, which points to `len` steps.
    let refused = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(refused, 0, "{}", std::io::Error::last_os_error());
}

/// The most descriptors that creating a driver may need.
const DESCRIPTORS_MAX: usize = 16;
