//! The server name of a ClientHello: every split, fragments, bounds, and bytes that are none.

use tidegate_l4::{ClientHello, HelloError, read_client_hello};

const MAX: usize = 16 * 1024;

/// The body of a ClientHello with these extensions.
fn body(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([4, 1, 2, 3, 4]);
    body.extend([0, 4, 0x13, 1, 0x13, 2]);
    body.extend([1, 0]);
    let mut all = Vec::new();
    for (kind, data) in extensions {
        all.extend(kind.to_be_bytes());
        all.extend((data.len() as u16).to_be_bytes());
        all.extend(data);
    }
    body.extend((all.len() as u16).to_be_bytes());
    body.extend(all);
    body
}

/// The data of the extension `server_name`.
fn name_data(name: &[u8]) -> Vec<u8> {
    let mut data = ((name.len() + 3) as u16).to_be_bytes().to_vec();
    data.push(0);
    data.extend((name.len() as u16).to_be_bytes());
    data.extend(name);
    data
}

fn message(body: &[u8]) -> Vec<u8> {
    let mut message = vec![1];
    message.extend(&(body.len() as u32).to_be_bytes()[1..]);
    message.extend(body);
    message
}

/// The message in records of so many bytes each.
fn records(message: &[u8], each: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(each).flat_map(record).collect()
}

pub(crate) fn hello(name: &str) -> Vec<u8> {
    let extensions = [(10, vec![0, 2, 0, 29]), (0, name_data(name.as_bytes())), (0xff01, vec![0])];
    records(&message(&body(&extensions)), MAX)
}

fn complete(name: &str) -> Result<ClientHello, HelloError> {
    Ok(ClientHello::Complete(Some(name.to_owned())))
}

#[test]
fn the_name_is_found_in_every_split_and_in_records_of_any_length() {
    let message = message(&body(&[(43, vec![2, 3, 4]), (0, name_data(b"Sea.Example"))]));
    for each in [1, 2, 3, 7, 50, MAX] {
        let bytes = records(&message, each);
        for end in 0..bytes.len() {
            match read_client_hello(&bytes[..end], MAX) {
                // Never more than there will be.
                Ok(ClientHello::NeedMore(needed)) => {
                    assert!((end + 1..=bytes.len()).contains(&needed), "{each}, {end}");
                }
                other => panic!("{other:?} after {end} bytes in records of {each}"),
            }
        }
        assert_eq!(read_client_hello(&bytes, MAX), complete("sea.example"), "records of {each}");
        // The next record does not matter.
        assert_eq!(read_client_hello(&[&bytes[..], b"\x14\x03"].concat(), MAX), complete("sea.example"));
    }
}

#[test]
fn a_hello_without_a_name_is_complete() {
    let none = Ok(ClientHello::Complete(None));
    assert_eq!(read_client_hello(&records(&message(&body(&[])), MAX), MAX), none);
    // TLS 1.2 without extensions.
    let mut short = body(&[]);
    short.truncate(short.len() - 2);
    assert_eq!(read_client_hello(&records(&message(&short), MAX), MAX), none);
    assert_eq!(read_client_hello(&hello("sea.example."), MAX), complete("sea.example"));
}

#[test]
fn a_port_behind_a_name_is_ignored() {
    for name in ["sea.example:8443", "SEA.example.:0"] {
        assert_eq!(read_client_hello(&hello(name), MAX), complete("sea.example"), "{name}");
    }
    for name in [":8443", "sea.example:", "sea.example:x", "sea.example:1:2", "::1"] {
        assert_eq!(read_client_hello(&hello(name), MAX), Err(HelloError::Name), "{name}");
    }
}

#[test]
fn other_bytes_are_refused_with_the_first_that_shows_it() {
    for bytes in
        [&b"G"[..], b"\x16\x02", b"\x15\x03\x01\x00\x02\x02\x70", b"\x80\x2e\x01", b"\x16\x03\x01\x00\x05\x02\0\0\0\0"]
    {
        assert_eq!(read_client_hello(bytes, MAX), Err(HelloError::NotTls), "{bytes:?}");
    }
    for bytes in [&b"\x16\x03\x01\x00\x00"[..], b"\x16\x03\x01\x40\x01"] {
        assert_eq!(read_client_hello(bytes, MAX), Err(HelloError::Malformed), "{bytes:?}");
    }
}

#[test]
fn malformed_hellos_are_refused() {
    let wrong_list = [0, 3, 1, 0, 1, b'a'].to_vec();
    let of = |extensions: &[(u16, Vec<u8>)]| read_client_hello(&records(&message(&body(extensions)), MAX), MAX);
    let twice = [(0, name_data(b"a")), (0, name_data(b"a"))];
    let mut two_names = name_data(b"a");
    two_names.extend([0, 0, 1, b'b']);
    for extensions in [&twice[..], &[(0, wrong_list)], &[(0, vec![])], &[(0, two_names)], &[(0, vec![0, 9, 0])]] {
        assert_eq!(of(extensions), Err(HelloError::Malformed), "{extensions:?}");
    }
    let long = vec![b'a'; 256];
    for name in [&b""[..], b"a b", b"a\0b", "\u{e4}".as_bytes(), &long] {
        assert_eq!(of(&[(0, name_data(name))]), Err(HelloError::Name), "{name:?}");
    }
    // Cut anywhere, with a length that fits.
    let whole = body(&[(0, name_data(b"sea.example"))]);
    let with_extensions = whole.len() - 2 - 4 - name_data(b"sea.example").len();
    for end in (0..whole.len()).filter(|end| *end != with_extensions) {
        let result = read_client_hello(&records(&message(&whole[..end]), MAX), MAX);
        assert_eq!(result, Err(HelloError::Malformed), "{end}");
    }
    // A second message in the record.
    let mut more = message(&whole);
    more.push(1);
    assert_eq!(read_client_hello(&records(&more, MAX), MAX), Err(HelloError::Malformed));
}

#[test]
fn a_hello_above_the_limit_is_refused_before_it_has_come_and_one_at_the_limit_is_not() {
    let bytes = records(&message(&body(&[(0, name_data(b"sea.example")), (21, vec![0; 4_000])])), MAX);
    assert_eq!(read_client_hello(&bytes, bytes.len()), complete("sea.example"));
    assert_eq!(read_client_hello(&bytes[..5], bytes.len() - 1), Err(HelloError::TooLong));
    // The length of the message alone, and the headers of small records.
    assert_eq!(read_client_hello(b"\x16\x03\x01\x00\x04\x01\x00\xff\xff", 4_000), Err(HelloError::TooLong));
    let small = records(&message(&body(&[(0, name_data(b"sea.example"))])), 1);
    assert_eq!(read_client_hello(&small, small.len() - 1), Err(HelloError::TooLong));
    assert_eq!(read_client_hello(&small, small.len()), complete("sea.example"));
}

#[test]
fn the_number_of_records_is_bounded() {
    let bytes = |records_of: usize| {
        let message = message(&body(&[(0, name_data(b"sea.example")), (21, vec![0; 4_000])]));
        records(&message, message.len().div_ceil(records_of))
    };
    assert_eq!(read_client_hello(&bytes(200), MAX), complete("sea.example"));
    assert_eq!(read_client_hello(&bytes(300), MAX), Err(HelloError::TooLong));
}

#[test]
fn changed_bytes_never_panic() {
    let bytes = hello("sea.example");
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let _ = read_client_hello(&changed, MAX);
        }
    }
}
