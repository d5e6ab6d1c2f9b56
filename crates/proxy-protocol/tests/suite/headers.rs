//! Headers of both versions: their meaning, and the refused ones.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_proxy_protocol::{
    Builder, Error, Exceeded, Header, Misuse, SslBuilder, Tlv, Transport, Version, Violation,
};

use crate::support::{at, overlong, tlv, v2, v4};

fn refused(bytes: &[u8]) -> Violation {
    match Header::parse(bytes) {
        Err(Error::Peer(violation)) => violation,
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

#[test]
fn the_example_of_the_specification() {
    let header = Header::parse(b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n").unwrap();
    assert_eq!(header.source(), Some(at("192.168.0.1:56324")));
    assert_eq!(header.destination(), Some(at("192.168.0.11:443")));
    assert_eq!((header.version(), header.transport()), (Version::One, Transport::Stream));
}

#[test]
fn the_longest_lines() {
    let v6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let lines = [
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n".to_owned(), 56),
        (format!("PROXY TCP6 {v6} {v6} 65535 65535\r\n"), 104),
        (format!("PROXY UNKNOWN {v6} {v6} 65535 65535\r\n"), 107),
        ("PROXY UNKNOWN\r\n".to_owned(), 15),
    ];
    for (line, length) in lines {
        assert_eq!(line.len(), length);
        let header = Header::parse(line.as_bytes()).unwrap();
        assert_eq!(header.source().is_none(), line.contains("UNKNOWN"), "{line}");
    }
}

#[test]
fn a_line_of_108_bytes_is_refused_whether_or_not_its_end_has_come() {
    let line = |bytes: usize| format!("{:x<1$}\r\n", "PROXY UNKNOWN ", bytes - 2);
    assert!(Header::parse(line(107).as_bytes()).is_ok());
    assert_eq!(refused(line(108).as_bytes()), Violation::LineTooLong);
    assert_eq!(refused(&line(108).as_bytes()[..107]), Violation::LineTooLong);
    assert_eq!(refused(&line(108).as_bytes()[..106]), Violation::Truncated);
}

#[test]
fn lines_that_are_almost_right_are_refused() {
    for line in [
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 ::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::2 1 2\r\n",
        "PROXY TCP6 :::1 ::2 1 2\r\n",
        "PROXY TCP6 1::2::3 ::2 1 2\r\n",
        "PROXY TCP6 00001::2 ::2 1 2\r\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY \r\n",
        "PROXY TCP4 192.0.2.1\t192.0.2.2 1 2\r\n",
    ] {
        assert_eq!(refused(line.as_bytes()), Violation::Line, "{line}");
    }
    // Whatever stands behind UNKNOWN is ignored.
    assert!(Header::parse(b"PROXY UNKNOWN \0 ? \r\n").is_ok());
    for line in ["PROXY UNKNOWN\n", "PROXY UNKNOWN\r", "PROXY UNKNOWN\rx\r\n", "PROXY UNKNOWN a\nb\r\n"] {
        let expected = if line.ends_with('\r') { Violation::Truncated } else { Violation::LineEnd };
        assert_eq!(refused(line.as_bytes()), expected, "{line:?}");
    }
}

#[test]
fn zero_is_a_port_and_a_mapped_address_is_written_in_two_ways() {
    let header = Header::parse(b"PROXY TCP6 ::ffff:192.0.2.1 ::FFFF:c000:201 0 65535\r\n").unwrap();
    assert_eq!(header.source(), Some(at("[::ffff:192.0.2.1]:0")));
    assert_eq!(header.destination(), Some(at("[::ffff:192.0.2.1]:65535")));
}

#[test]
fn the_binary_header_byte_by_byte() {
    let header = Header::parse(&v4(&[])).unwrap();
    assert_eq!(header.source(), Some(at("192.0.2.1:50000")));
    assert_eq!(header.destination(), Some(at("198.51.100.1:443")));
    assert_eq!((header.version(), header.transport(), header.is_local()), (Version::Two, Transport::Stream, false));

    let mut block = [0; 36];
    (block[15], block[31], block[33], block[35]) = (1, 2, 80, 81);
    let header = Header::parse(&v2(0x21, 0x22, &block)).unwrap();
    assert_eq!((header.source(), header.destination()), (Some(at("[::1]:80")), Some(at("[::2]:81"))));
    assert_eq!(header.transport(), Transport::Datagram);

    let mut block = [0; 216];
    block[..4].copy_from_slice(b"/ebb");
    block[108..113].copy_from_slice(b"\0flow");
    let header = Header::parse(&v2(0x21, 0x31, &block)).unwrap();
    let unix = header.unix().unwrap();
    assert_eq!((&unix.source[..], &unix.destination[..]), (&b"/ebb"[..], &b"\0flow"[..]));
    assert_eq!(header.source(), None);
}

#[test]
fn local_and_unspecified_have_no_addresses_and_their_blocks_are_skipped() {
    for (command, family, is_local) in [
        (0x20, 0x00, true),
        (0x20, 0x11, true),
        (0x20, 0xFF, true),
        (0x21, 0x00, false),
        (0x21, 0x10, false),
        (0x21, 0x01, false),
    ] {
        for block in [&b""[..], &[7; 40]] {
            let header = Header::parse(&v2(command, family, block)).unwrap();
            assert_eq!((header.is_local(), header.source(), header.tlvs().count()), (is_local, None, 0));
        }
    }
}

#[test]
fn binary_headers_that_are_almost_right_are_refused() {
    let good = v4(&[]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(refused(&with(12, 0x11)), Violation::Version);
    assert_eq!(refused(&with(12, 0x31)), Violation::Version);
    assert_eq!(refused(&with(12, 0x22)), Violation::Command);
    assert_eq!(refused(&with(13, 0x41)), Violation::Family);
    assert_eq!(refused(&with(13, 0x13)), Violation::Transport);
    assert_eq!(refused(&with(15, 11)), Violation::AddressTruncated);
    assert_eq!(refused(&with(15, 13)), Violation::Truncated);
    assert_eq!(refused(&v2(0x21, 0x31, &[0; 215])), Violation::AddressTruncated);
    assert_eq!(refused(&good[..15]), Violation::Truncated);
}

#[test]
fn tlvs_are_read() {
    let ssl = [vec![0b111, 0, 0, 0, 0], tlv(0x21, b"TLSv1.3"), tlv(0x22, "Ebbe".as_bytes()), tlv(0x99, b"?")].concat();
    let header = v4(&[
        tlv(0x01, b"h2"),
        tlv(0x02, b"sea.example"),
        tlv(0x04, &[0; 9]),
        tlv(0x05, b"id"),
        tlv(0x20, &ssl),
        tlv(0x30, b"blue"),
        tlv(0xE0, b"\xFF"),
    ]);
    let header = Header::parse(&header).unwrap();
    assert_eq!((header.alpn(), header.authority()), (Some(&b"h2"[..]), Some("sea.example")));
    assert_eq!(header.unique_id(), Some(&b"id"[..]));
    let ssl = header.ssl().unwrap();
    assert!(ssl.is_tls() && ssl.has_certificate() && ssl.had_certificate_in_session() && ssl.is_verified());
    assert_eq!((ssl.version(), ssl.common_name(), ssl.cipher()), (Some("TLSv1.3"), Some("Ebbe"), None));
    assert_eq!(ssl.tlvs().count(), 3);
    let tlvs: Vec<_> = header.tlvs().collect();
    assert_eq!(tlvs[2], Tlv::Noop(&[0; 9]));
    assert_eq!(tlvs[5..], [Tlv::Netns("blue"), Tlv::Other { kind: 0xE0, value: b"\xFF" }]);
}

#[test]
fn overlong_and_nested_tlvs_are_refused() {
    let ssl = |tlvs: Vec<u8>| v4(&[tlv(0x20, &[vec![1, 0, 0, 0, 0], tlvs].concat())]);
    for header in [
        v4(&[overlong(0x02, 4, b"sea")]),
        v4(&[overlong(0x02, u16::MAX, b"")]),
        v4(&[vec![0x02]]),
        v4(&[vec![0x02, 0]]),
        v4(&[tlv(0x04, b""), vec![0xEE, 0, 1]]),
        ssl(overlong(0x21, 8, b"TLSv1.3")),
        ssl(vec![0x21, 0]),
        // It ends within the header, and not within the TLV that contains it.
        v4(&[tlv(0x20, &[1, 0, 0, 0, 0, 0x21, 0, 4]), tlv(0x04, &[0; 8])]),
    ] {
        assert_eq!(refused(&header), Violation::TlvTruncated);
    }
    for header in [
        v4(&[tlv(0x20, &[1, 0, 0, 0])]),
        v4(&[tlv(0x02, b"\xFF")]),
        v4(&[tlv(0x05, &[7; 129])]),
        v4(&[tlv(0x30, b"\xFF")]),
        v4(&[tlv(0x03, b"123")]),
        ssl(tlv(0x22, b"\xFF")),
    ] {
        assert_eq!(refused(&header), Violation::TlvValue);
    }
    // An SSL TLV within another is a value like any other: nothing recurses.
    let nested = (0..30).fold(Vec::new(), |inner, _| tlv(0x20, &[vec![1, 0, 0, 0, 0], inner].concat()));
    let header = v4(&[nested]);
    assert_eq!(Header::parse(&header).unwrap().ssl().unwrap().tlvs().count(), 1);
}

#[test]
fn limits_of_length_and_of_number() {
    let long = v4(&[tlv(0x04, &vec![0; 4096 - 16 - 12 - 3])]);
    assert_eq!(long.len(), 4096);
    assert!(Header::parse(&long).is_ok());
    // Refused by its first 16 bytes, before the rest is awaited.
    let longer = v4(&[tlv(0x04, &vec![0; 4096 - 16 - 12 - 2])]);
    assert_eq!(Header::parse(&longer[..16]), Err(Error::Limit(Exceeded::HeaderBytes)));
    let many = |count: usize| vec![tlv(0x04, b""); count];
    assert!(Header::parse(&v4(&many(64))).is_ok());
    assert_eq!(Header::parse(&v4(&many(65))), Err(Error::Limit(Exceeded::Tlvs)));
    let within = |count| v4(&[tlv(0x20, &[vec![1, 0, 0, 0, 0], many(count).concat()].concat())]);
    assert!(Header::parse(&within(63)).is_ok());
    assert_eq!(Header::parse(&within(64)), Err(Error::Limit(Exceeded::Tlvs)));
}

#[test]
fn a_checksum_is_checked_wherever_it_stands() {
    let header = Builder::new(at("192.0.2.1:1"), at("192.0.2.2:2")).authority("sea.example").checksum();
    let good = header.build_v2().unwrap();
    assert!(Header::parse(&good).is_ok());
    for place in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            // A changed type hides the checksum from a receiver.
            let hides = Header::parse(&bad).is_ok_and(|header| !header.tlvs().any(|tlv| matches!(tlv, Tlv::Crc32c(_))));
            assert!(hides || Header::parse(&bad).is_err(), "bit {bit} of byte {place}");
        }
    }
    let two = v4(&[tlv(0x03, &[0; 4]), tlv(0x03, &[0; 4])]);
    assert_eq!(refused(&two), Violation::Checksum);
}

#[test]
fn an_inexpressible_header_is_not_built() {
    let (one, other) = (at("192.0.2.1:1"), at("192.0.2.2:2"));
    let ip = || Builder::new(one, other);
    assert_eq!(Builder::new(one, at("[::1]:1")).build_v2(), Err(Misuse::MixedFamilies));
    for builder in [ip().authority("a"), ip().checksum(), ip().datagram(), Builder::local(), Builder::unix(b"/a", b"")]
    {
        assert_eq!(builder.build_v1(), Err(Misuse::NotInVersion1));
        assert!(builder.build_v2().is_ok());
    }
    assert_eq!(Builder::unspecified().build_v1().unwrap(), b"PROXY UNKNOWN\r\n");
    assert_eq!(Builder::local().noop(3).build_v2(), Err(Misuse::NoAddresses));
    assert_eq!(Builder::unix(&[1; 109], b"").build_v2(), Err(Misuse::UnixAddress));
    assert_eq!(Builder::unix(b"/a\0", b"").build_v2(), Err(Misuse::UnixAddress));
    assert_eq!(ip().unique_id(&[0; 129]).build_v2(), Err(Misuse::ValueTooLong));
    assert_eq!(ip().alpn(&[0; 70_000]).build_v2(), Err(Misuse::ValueTooLong));
    assert_eq!(ip().netns("blå").build_v2(), Err(Misuse::NotAscii));
    assert_eq!(ip().ssl(&SslBuilder::new("TLSv1.3").cipher("é")).build_v2(), Err(Misuse::NotAscii));
    for kind in [0x01, 0x03, 0x20, 0x22, 0x25, 0x30] {
        assert_eq!(ip().other(kind, b"").build_v2(), Err(Misuse::ReservedType));
    }
    assert_eq!(ip().noop(40_000).noop(40_000).build_v2(), Err(Misuse::HeaderTooLong));
}

fn address() -> impl Strategy<Value = (bool, [u8; 16], u16)> {
    (any::<bool>(), any::<[u8; 16]>(), any::<u16>())
}

fn socket((_, ip, port): (bool, [u8; 16], u16), is_v4: bool) -> std::net::SocketAddr {
    if is_v4 { ([ip[0], ip[1], ip[2], ip[3]], port).into() } else { (ip, port).into() }
}

proptest! {
    #[test]
    fn a_built_header_is_read_back(
        source in address(), destination in address(), datagram: bool, checksum: bool,
        alpn in proptest::option::of(vec(any::<u8>(), 0..20)),
        authority in proptest::option::of("\\PC{0,30}"),
        id in proptest::option::of(vec(any::<u8>(), 0..=128)),
        name in proptest::option::of("\\PC{0,20}"),
        custom in vec((0xE0_u8..0xF0, vec(any::<u8>(), 0..50)), 0..6),
    ) {
        let (from, to) = (socket(source, source.0), socket(destination, source.0));
        let mut builder = Builder::new(from, to);
        if datagram {
            builder = builder.datagram();
        }
        if let Some(alpn) = &alpn {
            builder = builder.alpn(alpn);
        }
        if let Some(authority) = &authority {
            builder = builder.authority(authority);
        }
        if let Some(id) = &id {
            builder = builder.unique_id(id);
        }
        if let Some(name) = &name {
            builder = builder.ssl(&SslBuilder::new("TLSv1.2").certificate(3).common_name(name));
        }
        for (kind, value) in &custom {
            builder = builder.other(*kind, value);
        }
        if checksum {
            builder = builder.checksum();
        }
        let header = Header::parse(&builder.build_v2().unwrap()).unwrap();
        prop_assert_eq!((header.source(), header.destination()), (Some(from), Some(to)));
        prop_assert_eq!(header.transport() == Transport::Datagram, datagram);
        prop_assert_eq!(header.alpn(), alpn.as_deref());
        prop_assert_eq!(header.authority(), authority.as_deref());
        prop_assert_eq!(header.unique_id(), id.as_deref());
        prop_assert_eq!(header.ssl().and_then(|ssl| ssl.common_name()), name.as_deref());
        let others = header.tlvs().filter_map(|tlv| match tlv {
            Tlv::Other { kind, value } => Some((kind, value.to_vec())),
            _ => None,
        });
        prop_assert_eq!(others.collect::<Vec<_>>(), custom);
        prop_assert_eq!(header.tlvs().any(|tlv| matches!(tlv, Tlv::Crc32c(_))), checksum);
    }

    #[test]
    fn a_line_that_is_built_is_read_back(source in address(), destination in address()) {
        let (from, to) = (socket(source, source.0), socket(destination, source.0));
        let line = Builder::new(from, to).build_v1().unwrap();
        let header = Header::parse(&line).unwrap();
        prop_assert_eq!((header.source(), header.destination()), (Some(from), Some(to)));
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300)) {
        for start in [&b""[..], b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x80"] {
            let _ = Header::parse(&[start, &bytes].concat()).map(|header| header.tlvs().count());
        }
    }
}
