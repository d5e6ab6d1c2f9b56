//! Pieces of files, alone and among bytes in memory.

use std::fs::File;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;

use tidegate_buffer::{FileRegion, Outbound};

use crate::directory::Directory;
use crate::driver::harness::{Family, Harness, Report, assert_same, pattern, read};
use crate::driver::which::Which;

fn file(directory: &Directory, name: &str, bytes: &[u8]) -> Arc<File> {
    std::fs::write(directory.path(name), bytes).unwrap();
    Arc::new(File::open(directory.path(name)).unwrap())
}

pub(crate) fn files_and_memory_arrive_in_queue_order(driver: Which) {
    let directory = Directory::new();
    let bytes = pattern(3 << 20);
    let file = file(&directory, "file", &bytes);
    for family in Family::BOTH {
        for bytes_max in [usize::MAX, 100_000, 4093] {
            let mut harness = Harness::on(driver);
            let (token, peer) = harness.pair(family);
            let mut queue = Outbound::new(&harness.pool);
            let mut expected = Vec::new();
            for (offset, length) in [(0, 10), (5, 100_000), (1 << 20, 2 << 20), (77, 1)] {
                queue.write(b"head ");
                expected.extend_from_slice(b"head ");
                queue.link_file(FileRegion { file: file.clone(), offset, length });
                queue.link_file(FileRegion { file: file.clone(), offset, length: 0 });
                expected.extend_from_slice(&bytes[offset as usize..][..length as usize]);
            }
            queue.write(b"tail");
            expected.extend_from_slice(b"tail");
            queue.flush();
            let length = expected.len();
            let reader = thread::spawn(move || read(&peer, length));
            harness.send_all(token, &mut queue, bytes_max).unwrap();
            assert_same(&reader.join().unwrap(), &expected);
        }
    }
}

pub(crate) fn a_blocked_file_resumes_when_the_peer_reads(driver: Which) {
    let directory = Directory::new();
    let bytes = pattern(24 << 20);
    let file = file(&directory, "file", &bytes);
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(family);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_file(FileRegion { file: file.clone(), offset: 0, length: bytes.len() as u64 });
        queue.flush();
        harness.send_until_full(token, &mut queue);
        harness.assert_quiet();
        assert_eq!(harness.take(token), []);
        let reader = thread::spawn(move || read(&peer, 24 << 20));
        assert!(harness.send_all(token, &mut queue, usize::MAX).unwrap() >= 1);
        assert_same(&reader.join().unwrap(), &bytes);
    }
}

pub(crate) fn a_file_that_is_shorter_than_its_region_is_an_error(driver: Which) {
    let directory = Directory::new();
    let file = file(&directory, "file", b"short");
    for (offset, arrives) in [(0, &b"short"[..]), (3, b"rt"), (5, b""), (100, b"")] {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(Family::Tcp);
        // All edges are taken, so a send that wrongly waits for another edge is noticed.
        harness.run_until_idle();
        let mut queue = Outbound::new(&harness.pool);
        queue.link_file(FileRegion { file: file.clone(), offset, length: 10 });
        queue.flush();
        let error = harness.send_all(token, &mut queue, usize::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "at {offset}");
        harness.close(token, false);
        assert_eq!(read(&peer, usize::MAX), arrives, "at {offset}");
    }
}

pub(crate) fn a_limit_of_zero_bytes_still_sends(driver: Which) {
    let directory = Directory::new();
    let file = file(&directory, "file", b"abc");
    let mut harness = Harness::on(driver);
    let (token, peer) = harness.pair(Family::Tcp);
    let mut queue = Outbound::new(&harness.pool);
    queue.link_file(FileRegion { file, offset: 0, length: 3 });
    queue.flush();
    harness.send_all(token, &mut queue, 0).unwrap();
    assert_eq!(read(&peer, 3), b"abc");
}

pub(crate) fn the_bytes_before_a_file_leave_with_it(driver: Which) {
    let directory = Directory::new();
    let file = file(&directory, "file", b"file");
    // The kernel keeps them for 200 ms at most, so an attempt may fail on a machine that is busy.
    let leave_together = (0..10).any(|_| {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(Family::Tcp);
        let mut queue = Outbound::new(&harness.pool);
        queue.write(b"head ");
        queue.link_file(FileRegion { file: file.clone(), offset: 0, length: 4 });
        queue.flush();
        let sent = harness.send(token, &mut queue, usize::MAX).expect("the kernel has room").unwrap();
        let arrived = rustix::io::ioctl_fionread(&peer).unwrap();
        assert_eq!(sent, 5);
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        assert_eq!(read(&peer, 9), b"head file");
        arrived == 0
    });
    assert!(leave_together);
}

pub(crate) fn a_file_that_cannot_be_read_is_an_error(driver: Which) {
    let directory = Directory::new();
    std::fs::write(directory.path("file"), b"bytes").unwrap();
    let write_only = File::options().write(true).open(directory.path("file")).unwrap();
    let mut harness = Harness::on(driver);
    let (token, _peer) = harness.pair(Family::Tcp);
    let mut queue = Outbound::new(&harness.pool);
    queue.link_file(FileRegion { file: Arc::new(write_only), offset: 0, length: 5 });
    queue.flush();
    assert!(harness.send_all(token, &mut queue, usize::MAX).is_err());
    harness.run_until_idle();
    assert_eq!(harness.take(token), Vec::<Report>::new());
}
