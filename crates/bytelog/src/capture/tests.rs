use std::io::Read;
use std::os::fd::OwnedFd;

use super::*;

fn frame(payload: usize) -> Frame {
    let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
    Frame {
        from: address(1),
        to: address(2),
        sequence: 1,
        acknowledged: 1,
        flags: Frame::ACK,
        time: Duration::ZERO,
        payload: vec![7; payload].into(),
    }
}

/// A capture whose file is a pipe.
fn piped(options: CaptureOptions) -> (Capture, impl Read) {
    let (reader, writer) = io::pipe().expect("there are descriptors left");
    (Capture::into(OwnedFd::from(writer).into(), options).expect("the header fits the pipe"), reader)
}

/// The lengths of the records of a file.
fn records(mut file: &[u8]) -> Vec<usize> {
    assert_eq!(file[..FILE_HEADER_BYTES], file_header());
    file = &file[FILE_HEADER_BYTES..];
    let mut lengths = Vec::new();
    while !file.is_empty() {
        let length = u32::from_le_bytes(*file[8..].first_chunk().expect("a whole header")) as usize;
        assert!(file.len() >= 16 + length, "a record is truncated");
        lengths.push(length);
        file = &file[16 + length..];
    }
    lengths
}

#[test]
fn a_file_that_takes_nothing_blocks_no_caller_and_its_frames_are_dropped_and_counted() {
    let options = CaptureOptions { buffer_bytes_max: 200_000, ..CaptureOptions::default() };
    let (capture, mut reader) = piped(options);
    // No process reads the pipe meanwhile, which has room for fewer.
    for _ in 0..1_000 {
        capture.push(frame(1_000));
    }
    let dropped = capture.counts().dropped;
    assert!((700..1_000).contains(&dropped), "{dropped} frames are dropped");
    let reading = std::thread::spawn(move || {
        let mut file = Vec::new();
        reader.read_to_end(&mut file).map(|_| file)
    });
    let counts = capture.finish().unwrap();
    assert_eq!((counts.frames + counts.dropped, counts.dropped), (1_000, dropped));
    let lengths = records(&reading.join().unwrap().unwrap());
    assert_eq!(lengths, vec![1_054; counts.frames as usize]);
}

#[test]
fn a_file_ends_with_the_last_record_that_fits() {
    let options = CaptureOptions { file_bytes_max: 10_000, ..CaptureOptions::default() };
    let (capture, mut reader) = piped(options);
    for payload in [4_000, 4_000, 4_000, 10, 4_000] {
        capture.push(frame(payload));
    }
    let counts = capture.finish().unwrap();
    let mut file = Vec::new();
    reader.read_to_end(&mut file).unwrap();
    assert_eq!((records(&file), counts), (vec![4_054, 4_054], CaptureCounts { frames: 2, dropped: 3 }));
    assert!(!capture.is_open());
}

#[test]
fn a_file_that_fails_is_reported_once_and_drops_later_frames() {
    let (capture, reader) = piped(CaptureOptions::default());
    drop(reader);
    capture.push(frame(10));
    while capture.is_open() {
        std::thread::yield_now();
    }
    capture.push(frame(10));
    assert_eq!(capture.finish().map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
    assert_eq!(capture.finish().unwrap(), CaptureCounts { frames: 0, dropped: 2 });
}

#[test]
fn the_thread_ends_with_the_last_connection() {
    let (capture, mut reader) = piped(CaptureOptions::default());
    let connection = capture.connection(Role::Server, None, None);
    drop(capture);
    drop(connection);
    // The end of the pipe: the thread has closed its file.
    let mut file = Vec::new();
    reader.read_to_end(&mut file).unwrap();
    assert_eq!(records(&file), [0; 0]);
}
