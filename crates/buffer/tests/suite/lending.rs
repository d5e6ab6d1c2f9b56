//! Room at the end of a queue that another queue writes into.

use tidegate_buffer::{Outbound, Pool, Room};

#[test]
fn bytes_written_into_lent_room_become_part_of_the_lender() {
    let pool = Pool::new();
    let (mut session, mut room) = (Outbound::new(&pool), Room::new(&pool));
    let mut expected = Vec::new();
    // More than one segment, by several queues in turns; some write nothing.
    let mut streams = [(); 3].map(|()| Outbound::new(&pool));
    for number in 0..600_usize {
        let stream = &mut streams[number % 3];
        session.lend_room(&mut room, 2);
        stream.borrow_room(&mut room);
        let text = number.to_string().repeat(number % 5);
        stream.write(text.as_bytes());
        let head = [b'0' + (text.len() / 10) as u8, b'0' + (text.len() % 10) as u8];
        if text.is_empty() {
            assert!(!session.take_lent(&mut room, stream, &head));
            session.forgo_lent(&mut room, Some(stream));
        } else {
            assert!(session.take_lent(&mut room, stream, &head), "{number}");
            expected.extend([&head[..], text.as_bytes()].concat());
        }
        assert_eq!((stream.pending(), stream.cost()), (0, 0));
        if number % 7 == 0 {
            session.write(b"!");
            expected.push(b'!');
        }
        if number % 50 == 0 {
            session.flush();
        }
    }
    assert_eq!(session.pending(), expected.len() as u64);
    assert!(pool.ledger().used() < expected.len() + 4 * 4096, "{} bytes", pool.ledger().used());
    assert_eq!(drained(&mut session), expected);
    room.release();
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn bytes_that_do_not_fit_into_lent_room_stay_in_place() {
    let pool = Pool::new();
    let (mut session, mut stream, mut room) = (Outbound::new(&pool), Outbound::new(&pool), Room::new(&pool));
    let long = vec![b'l'; 5_000];
    for content in [&long[..], b"short"] {
        session.lend_room(&mut room, 2);
        stream.borrow_room(&mut room);
        stream.write(content);
        if content.len() > 10 {
            assert!(!session.take_lent(&mut room, &mut stream, b"xx"));
        }
        session.forgo_lent(&mut room, Some(&mut stream));
        assert!(!session.take_lent(&mut room, &mut stream, &[]), "the loan is over");
        // The lender goes on, and the borrower keeps its bytes.
        session.write(b"session");
        stream.flush();
        let mut out = Outbound::new(&pool);
        out.take_flushed(&mut stream);
        assert_eq!(drained(&mut out), content);
    }
    assert_eq!(drained(&mut session), b"sessionsession");
    drop(room);
    assert_eq!(pool.ledger().used(), 0);
}

#[test]
fn a_queue_takes_nothing_that_was_not_lent_by_it() {
    let pool = Pool::new();
    let (mut one, mut two, mut stream) = (Outbound::new(&pool), Outbound::new(&pool), Outbound::new(&pool));
    let mut room = Room::new(&pool);
    two.write(b"two");
    one.lend_room(&mut room, 2);
    stream.borrow_room(&mut room);
    stream.write(b"stream");
    assert!(!two.take_lent(&mut room, &mut stream, b"xx"));
    // The lender was written meanwhile.
    one.write(b"one");
    assert!(!one.take_lent(&mut room, &mut stream, b"xx"));
    one.forgo_lent(&mut room, Some(&mut stream));
    // Memory of another pool is no room.
    let elsewhere = Pool::new();
    let mut foreign = Outbound::new(&elsewhere);
    one.lend_room(&mut room, 2);
    foreign.borrow_room(&mut room);
    foreign.write(b"foreign");
    assert!(!one.take_lent(&mut room, &mut foreign, b"xx"));
    one.forgo_lent(&mut room, Some(&mut foreign));
    let contents = [&mut one, &mut two, &mut stream, &mut foreign].map(drained);
    assert_eq!(contents, [&b"one"[..], b"two", b"stream", b"foreign"]);
}

/// All bytes of a queue.
fn drained(queue: &mut Outbound) -> Vec<u8> {
    queue.flush();
    let mut bytes = Vec::new();
    while let Some(front) = queue.front() {
        bytes.extend_from_slice(front);
        let length = front.len() as u64;
        queue.advance(length);
    }
    assert!(queue.is_empty());
    bytes
}
