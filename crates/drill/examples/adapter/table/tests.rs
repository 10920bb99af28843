use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{sockaddr_in, socklen_t};

use super::{Table, packetdrill_interface_init};
use crate::preload;

const ADDRESS: [u8; 4] = [198, 51, 100, 1];
const PEER: [u8; 4] = [192, 0, 2, 1];

/// A SYN from the peer's port 9 to our port 80, checksums included.
fn syn() -> Vec<u8> {
    let mut packet = vec![0u8; 40];
    packet[0] = 0x45;
    packet[3] = 40;
    packet[8] = 64;
    packet[9] = 6;
    packet[12..16].copy_from_slice(&PEER);
    packet[16..20].copy_from_slice(&ADDRESS);
    packet[20..24].copy_from_slice(&[0, 9, 0, 80]);
    packet[32..36].copy_from_slice(&[0x50, 2, 0xff, 0xff]);
    let sum = |bytes: &[u8], start: u32| {
        let words = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum = words.sum::<u32>() + start;
        let sum = (sum & 0xffff) + (sum >> 16);
        !(((sum & 0xffff) + (sum >> 16)) as u16)
    };
    let head = sum(&packet[..20], 0);
    packet[10..12].copy_from_slice(&head.to_be_bytes());
    // The pseudo header: both addresses, the protocol and the length.
    let segment = sum(&packet[12..], 6 + 20);
    packet[36..38].copy_from_slice(&segment.to_be_bytes());
    packet
}

/// The table as the tool has it.
fn table(flags: &CStr) -> Table {
    let mut table = MaybeUninit::uninit();
    // The function fills in all of it, or ends the process.
    unsafe {
        packetdrill_interface_init(flags.as_ptr(), table.as_mut_ptr());
        table.assume_init()
    }
}

fn name(port: u16) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ADDRESS) },
        sin_zero: [0; 8],
    }
}

/// All in one test: a process has one adapter.
#[test]
fn a_syn_is_answered_through_the_table() {
    let table = table(c"local=198.51.100.1,remote=192.0.2.1");
    let user = table.userdata;
    let mut packet = vec![0u8; 4096];
    let (mut len, mut micros) = (packet.len(), 0);
    unsafe {
        let fd = (table.socket)(user, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(libc::fcntl(fd, libc::F_GETFD) >= 0, "no real descriptor");
        let address = name(80);
        let size = size_of::<sockaddr_in>() as socklen_t;
        assert_eq!((table.bind)(user, fd, (&raw const address).cast(), size), 0);
        assert_eq!((table.listen)(user, fd, 1), 0);

        assert_eq!((table.usleep)(user, 1_000), 0);
        let syn = syn();
        assert_eq!((table.netdev_send)(user, syn.as_ptr().cast(), syn.len()), 0);
        let room = packet.as_mut_ptr().cast();
        assert_eq!((table.netdev_receive)(user, room, &raw mut len, &raw mut micros), 0);

        // What goes round the table reaches the same socket.
        let (mut value, mut size) = (0, 4 as socklen_t);
        let place = (&raw mut value).cast();
        let (level, option) = (libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
        assert_eq!(preload::getsockopt(fd, level, option, place, &raw mut size), 0);
        assert_eq!(value, 1);
        assert_eq!(preload::system(c"sysctl -q net.ipv4.tcp_sack=0".as_ptr()), 0);
        assert_ne!(preload::system(c"no_such_command".as_ptr()), 0);

        assert_eq!((table.close)(user, fd), 0);
        assert_eq!((table.listen)(user, fd, 1), -1);
        assert_eq!(*libc::__errno_location(), libc::EBADF);
        let nobody: *mut _ = ptr::null_mut();
        assert_eq!((table.accept)(user, fd, nobody, ptr::null_mut()), -1);
    }
    assert!(len >= 40, "{len} bytes came");
    assert_eq!(packet[33] & 0x3f, 0x12, "not a SYN-ACK");
    let mut time = MaybeUninit::uninit();
    let now = unsafe {
        (table.gettimeofday)(user, time.as_mut_ptr(), ptr::null_mut());
        let time: libc::timeval = time.assume_init();
        time.tv_sec * 1_000_000 + time.tv_usec
    };
    assert!((1..=now).contains(&micros), "left at {micros}, and it is {now}");
}
