//! The options of a [`UdpSocket`].

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plimsoll_stack::{PathMtuDiscovery, UdpOptions};

use crate::options::{told_ttl, ttl_of};
use crate::udp::UdpSocket;

impl UdpSocket {
    /// All options, as they are now.
    pub fn options(&self) -> UdpOptions {
        self.socket().options()
    }

    /// Changes options.
    ///
    /// # Errors
    /// `InvalidInput` if there is no interface with the number of the multicast interface.
    pub fn change_options(&self, change: impl FnOnce(&mut UdpOptions)) -> io::Result<()> {
        self.told(self.socket().change_options(change))
    }

    /// Sets the hop limit of datagrams to one host, 1 to 255.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = ttl_of(ttl)?;
        self.change_options(|options| options.ttl = ttl)
    }

    /// The hop limit of datagrams to one host.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(told_ttl(self.options().ttl, self.stack()))
    }

    /// Sets TOS or traffic class of sent packets: DSCP in the upper six bits, ECN in the lower two.
    ///
    /// # Errors
    /// `InvalidInput` if it is more than 255.
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        let tos = u8::try_from(tos).map_err(|_| {
            let message = format!("a class of {tos} is not between 0 and 255");
            io::Error::new(ErrorKind::InvalidInput, message)
        })?;
        self.change_options(|options| options.tos = tos)
    }

    /// TOS or traffic class of sent packets.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn tos(&self) -> io::Result<u32> {
        Ok(u32::from(self.options().tos))
    }

    /// Allows to send to broadcast addresses (SO_BROADCAST).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.change_options(|options| options.broadcast = broadcast)
    }

    /// Whether it may send to broadcast addresses.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.options().broadcast)
    }

    /// Sets whether sockets of this stack receive this socket's datagrams to a group that they are
    /// in.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.change_options(|options| options.multicast_loop = on)
    }

    /// As it was set.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        Ok(self.options().multicast_loop)
    }

    /// As [`set_multicast_loop_v4`](Self::set_multicast_loop_v4): it is one option for both IP
    /// versions.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.set_multicast_loop_v4(on)
    }

    /// As it was set.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.multicast_loop_v4()
    }

    /// Sets the hop limit of datagrams to a group, of either IP version, 0 to 255.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).map_err(|_| {
            let message = format!("a TTL of {ttl} is not between 0 and 255");
            io::Error::new(ErrorKind::InvalidInput, message)
        })?;
        self.change_options(|options| options.multicast_ttl = ttl)
    }

    /// The hop limit of datagrams to a group.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        Ok(u32::from(self.options().multicast_ttl))
    }

    /// Joins a group on all interfaces. `interface` must be unspecified or one of the stack's
    /// addresses. No router is notified: see [`plimsoll_stack::UdpSocket::join_group`].
    ///
    /// # Errors
    /// `InvalidInput` if it is no group, `AddrInUse` if the socket is in it, `AddrNotAvailable` if
    /// `interface` is not ours.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.check_interface(interface)?;
        self.told(self.socket().join_group(IpAddr::V4(*group)))
    }

    /// As [`join_multicast_v4`](Self::join_multicast_v4); `interface` does not matter.
    ///
    /// # Errors
    /// As there.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let _ = interface;
        self.told(self.socket().join_group(IpAddr::V6(*group)))
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// `AddrNotAvailable` if the socket is not in it.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.check_interface(interface)?;
        self.told(self.socket().leave_group(IpAddr::V4(*group)))
    }

    /// Leaves a group; `interface` does not matter.
    ///
    /// # Errors
    /// `AddrNotAvailable` if the socket is not in it.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let _ = interface;
        self.told(self.socket().leave_group(IpAddr::V6(*group)))
    }

    fn check_interface(&self, interface: &Ipv4Addr) -> io::Result<()> {
        let ours = self.stack().core().addresses();
        if interface.is_unspecified() || ours.contains(&IpAddr::V4(*interface)) {
            return Ok(());
        }
        Err(io::Error::new(
            ErrorKind::AddrNotAvailable,
            format!("{interface} is no address of the stack"),
        ))
    }

    /// Sets whether packets may be fragmented, and whether the known path MTU is used
    /// (IP_MTU_DISCOVER).
    ///
    /// # Errors
    /// None; the result is there because the others have it.
    pub fn set_path_mtu_discovery(&self, discovery: PathMtuDiscovery) -> io::Result<()> {
        self.change_options(|options| options.path_mtu_discovery = discovery)
    }

    /// As it was set.
    pub fn path_mtu_discovery(&self) -> PathMtuDiscovery {
        self.options().path_mtu_discovery
    }

    /// Sets how many bytes unread datagrams may cost (SO_RCVBUF): at most `net.core.rmem_max`. Each
    /// datagram costs 128 bytes in addition to its own. Linux doubles the value of this option, and
    /// counts about twice as much.
    ///
    /// # Errors
    /// None; the result is there because the others have it.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.change_options(|options| options.rcvbuf = bytes)
    }

    /// As it was set.
    pub fn recv_buffer_size(&self) -> usize {
        self.options().rcvbuf
    }

    /// Sets the bytes that queued datagrams may cost (SO_SNDBUF), as
    /// [`set_recv_buffer_size`](Self::set_recv_buffer_size): at most `net.core.wmem_max`.
    ///
    /// # Errors
    /// None; the result is there because the others have it.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.change_options(|options| options.sndbuf = bytes)
    }

    /// As it was set.
    pub fn send_buffer_size(&self) -> usize {
        self.options().sndbuf
    }
}
