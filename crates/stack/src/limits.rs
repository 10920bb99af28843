//! All limits of the stack, each with the behaviour when it is reached.

use plimsoll_tcp::Duration;

/// Interfaces of one stack, loopback included. A configuration with more is refused.
pub const MAX_INTERFACES: usize = 16;

/// The least MTU of an interface, in bytes: every IPv4 host must accept packets of this size (RFC
/// 791). A smaller one is refused.
pub const MIN_MTU: u16 = 576;

/// Bytes of the longest super-segment for any device: it fits into one chunk of memory.
pub const MAX_SUPER_PACKET: usize = plimsoll_buf::MAX_CHUNK;

/// Packets that one poll takes from one device before it polls the others.
pub const RX_BATCH: usize = 64;

/// Consecutive segments with data that must arrive on another queue than their connection's before
/// the connection moves there.
pub(crate) const MISSES_BEFORE_MOVE: u8 = 2;

/// The least time in milliseconds for which a connection stays with a queue before it moves to
/// another on which its data arrives. Moving costs two locks.
pub(crate) const LEAST_STAY_MS: u16 = 10;

/// Bytes that one poll takes from a TUN device, give or take a packet. The packets are passed on
/// while they are in the cache; the next poll, which follows at once, reads the rest.
pub const RX_BATCH_BYTES: usize = 256 * 1024;

/// Bytes that such a poll takes in trains of UDP, give or take a packet. Packets in the device
/// count against the sender's SO_SNDBUF, which by default has room for three trains of 64 KiB. If a
/// poll read all of them before passing one on, the sender would be blocked meanwhile.
pub const RX_BATCH_TRAIN_BYTES: usize = 64 * 1024;

/// Timers that one poll fires. The next poll, which follows at once, fires the rest.
pub const TIMER_BATCH: usize = 256;

/// Packets that defer a timer which acts on a peer's silence. After them the timer fires, although
/// more packets may wait in the devices. The kernel lets half as many wait at a TUN device.
pub const PACKETS_BEFORE_SILENCE: usize = 16_384;

/// How long such timers may run after all devices were found empty. It bounds how often a queue
/// receives from the devices of the others, and is at most a tick of Linux's clock.
pub(crate) const EMPTY_FOR: Duration = Duration::from_millis(1);

/// Packets that the queueing discipline of an interface holds (Linux: `txqueuelen`). More are
/// dropped and counted (`IpOutDiscards`); TCP takes that as loss.
pub const TX_QUEUE_LEN: usize = 16_384;

/// The `txqueuelen` that is set on a TUN device: packets that may wait in the kernel for the stack.
/// Further packets are dropped, and counted there. At 300,000 packets a second the queue drains in
/// 27 ms, longer than a poller has to wait for a CPU among a few threads. The ring itself takes 64
/// KiB of the kernel's memory; SYNs that fill it use about 8 MiB, datagrams of 1,500 bytes about 20
/// MiB. Super-segments of 64 KiB could use 512 MiB, but a peer sends no more of them than the
/// receive windows allow.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) const RX_QUEUE_LEN: i32 = 8192;

/// Packets that wait in each direction of a channel device, unless its configuration sets another
/// number. Beyond it, packets wait in the stack's queueing discipline, or the caller waits.
pub const CHANNEL_QUEUE_LEN: usize = 512;

/// Packets in transit from one local address to another. Beyond it, the loopback device is busy and
/// packets wait in its queueing discipline.
pub const LOOPBACK_QUEUE_LEN: usize = 16_384;

/// Packets that a thread moves into a device before it hands over to the poller.
pub const DRAIN_PACKETS: usize = 64;

/// Rounds in which a thread that has drained an interface continues the connections that waited for
/// its completions, and drains again. Then it wakes the poller to continue.
pub const COMPLETION_ROUNDS: usize = 8;

/// Connections of one stack, open or closing, even if `plimsoll.max_connections` is larger. Beyond
/// it a connect fails with `ENOBUFS`, and a SYN is refused as the listener's `Refusal` says
/// (`TcpExtListenDrops`).
pub const MAX_CONNECTIONS: usize = 4 << 20;

/// The least memory budget of a stack, a listener or a connection, in bytes. A smaller one is
/// refused: every connection may always have more than that, so a smaller limit would have no
/// effect.
pub const MIN_MEMORY_BUDGET: usize = 65_536;

/// The largest memory budget of a stack or a listener, in bytes: the largest number of pages that
/// `net.ipv4.tcp_mem` accepts. A larger one is refused; `None` means no limit.
pub const MAX_MEMORY_BUDGET: u64 = 4096 << 32;

/// Learnt path MTUs that are kept. One more replaces the oldest.
pub const MAX_PMTU_ENTRIES: usize = 4096;

/// Pairs of addresses for which the stack keeps metrics of earlier connections. One more replaces
/// the oldest.
pub const MAX_METRICS_ENTRIES: usize = 4096;

/// Hosts that have their own limit on ICMP errors (`net.ipv4.icmp_ratelimit`). Further hosts share.
pub const ICMP_HOSTS: usize = 1024;

/// The longest echo request that is answered, in bytes. A longer one is dropped (`IcmpInErrors`).
pub const MAX_ECHO_DATA: usize = 65_507;

/// IP packets in reassembly at a time. One more drops the oldest packet of the source that holds
/// the most memory (`IpReasmFails`).
pub const MAX_REASSEMBLIES: usize = 256;

/// IP packets of one source in reassembly at a time. One more drops the source's oldest
/// (`IpReasmFails`).
pub const MAX_REASSEMBLIES_PER_SOURCE: usize = 64;

/// Bytes of memory for all unfinished reassemblies (Linux: `ipfrag_high_thresh`). Beyond it the
/// source that holds the most loses its oldest packet (`IpReasmFails`).
pub const MAX_REASSEMBLY_MEMORY: usize = 4 << 20;

/// Bytes of memory for one source's unfinished reassemblies. Beyond it the source's oldest is
/// dropped (`IpReasmFails`).
pub const MAX_REASSEMBLY_MEMORY_PER_SOURCE: usize = 1 << 20;

/// Calls of applications in the middle of a poll that queue packets before they are sent together.
pub(crate) const CALLS_PER_SEND: usize = 2;

/// Rounds in which a thread that releases a socket does the work that others have left for it. Then
/// the poller continues.
pub const RELEASE_ROUNDS: usize = 4;

/// Empty backlog queues that are kept for sockets that need one. Further ones are freed.
pub const MAX_SPARE_BACKLOGS: usize = 64;

/// Rounds in which one read takes data that arrived while it copied.
pub const READ_ROUNDS: usize = 16;

/// Packets that wait for a reader in a socket's prequeue (as in Linux 3.13). With one more, the
/// poller processes all of them (`TcpExtTCPPrequeueDropped`).
pub const PREQUEUE_LEN: usize = 32;

/// Packets that an empty prequeue keeps room for between reads.
pub(crate) const KEPT_PREQUEUE: usize = 8;

/// The time for which the poller relies on a spinning thread, after that thread's last poll. A
/// packet that arrives when the thread has stopped waits no longer than this.
pub const SPIN_LEASE: Duration = Duration::from_micros(200);

/// The amount that makes a UDP socket's traffic a stream: bytes read, including each datagram's
/// overhead, and sent in [`STREAM_SPAN`]. It is about a gigabit per second. A reader that the
/// devices wake ([`UdpSocket::watch_devices`](crate::UdpSocket::watch_devices)) polls them itself
/// meanwhile.
pub const STREAM_BYTES: usize = 128 * 1024;

/// The time over which that amount is counted.
pub const STREAM_SPAN: Duration = Duration::from_millis(1);

/// The time for which the poller leaves the devices to such a reader after its last poll: the
/// reader may have a whole receive queue to process. Packets for other sockets wait no longer than
/// this.
pub const STREAM_LEASE: Duration = Duration::from_millis(1);

/// Threads that count in their own shard at a time. A thread more counts in one that such threads
/// share, which costs it a locked instruction per count.
pub(crate) const MAX_SHARDS: usize = 64;

/// SYNs that a poller answers with cookies between two times at which it finds its device empty. A
/// poller that does not keep up answers [`COOKIES_PER_BATCH`] more with every batch; further SYNs
/// are dropped unread (`plimsoll.SynShed`). It is less than a device may hold, 500 at TUN: with
/// more, the device would be full and drop any packet before SYNs are shed.
pub(crate) const COOKIE_BURST: u32 = 256;

/// The allowance that a batch of [`RX_BATCH`] packets adds to that, while the device is not empty.
pub(crate) const COOKIES_PER_BATCH: u32 = 8;

/// Consecutive SYNs of proven peers that are processed although SYNs are shed
/// (`plimsoll.SynSpared`), in their own share. A batch that does not find the device empty adds
/// [`PROVEN_SYNS_PER_BATCH`]. Further ones are shed like any other.
pub(crate) const PROVEN_SYN_BURST: u32 = 64;

/// The allowance that a batch of [`RX_BATCH`] packets adds to that, while the device is not empty.
pub(crate) const PROVEN_SYNS_PER_BATCH: u32 = 8;

/// Addresses of peers that have completed a handshake, as a stack remembers them: 32 KiB. With one
/// more, an older one is forgotten.
pub(crate) const MAX_PROVEN_PEERS: usize = 4096;

/// How long such an address is remembered after the last handshake, or, while SYNs are shed, after
/// the last segment of an established connection.
pub(crate) const PROVEN_FOR: Duration = Duration::from_secs(3600);

/// Bytes of free buffers that a queue which works keeps in any case: with less it would go to the
/// allocator and back for every batch.
pub(crate) const POOL_FLOOR: usize = 256 * 1024;

/// A queue that has been idle for this time frees its unused buffers.
pub const POOL_IDLE: Duration = Duration::from_secs(1);

/// Bytes that a datagram costs in a UDP socket's queues in addition to its data, for the stack's
/// record of it. It also bounds the number of datagrams without data.
pub const DATAGRAM_OVERHEAD: usize = 128;

/// The datagram that a socket with an empty queue can always get, in bytes of payload, so that none
/// starves (Linux: `udp_rmem_min`). It matters when the receive queues of all UDP sockets use all
/// of `net.ipv4.udp_mem`. Such a datagram uses a chunk of this size at most. Other datagrams are
/// then dropped and counted (`UdpMemErrors`).
pub const UDP_MINIMUM: usize = 4096;

/// The longest payload of a UDP datagram over IPv4, in bytes. A longer one is refused (`EMSGSIZE`).
pub const MAX_DATAGRAM_V4: usize = 65_535 - 20 - 8;

/// The longest payload of a UDP datagram over IPv6, in bytes. A longer one is refused (`EMSGSIZE`).
pub const MAX_DATAGRAM_V6: usize = 65_535 - 8;

/// Datagrams that one call may send as segments of one (Linux: `UDP_MAX_SEGMENTS`). More are
/// refused (`EINVAL`).
pub const MAX_UDP_SEGMENTS: usize = 64;

/// UDP sockets of one stack, including flows. A further one is refused (`ENOBUFS`).
pub const MAX_UDP_SOCKETS: usize = 1 << 21;

/// The largest configurable number of flows of one UDP listener for any address.
pub const MAX_UDP_FLOWS: usize = 1 << 20;

/// Groups that one UDP socket joins (Linux: `net.ipv4.igmp_max_memberships`). A further one is
/// refused (`ENOBUFS`).
pub const MAX_MEMBERSHIPS: usize = 20;

/// A UDP flow to any address that was never answered ends after this time without a datagram, or
/// after its idle timeout if that is shorter.
pub const UDP_UNANSWERED_TIMEOUT: Duration = Duration::from_secs(30);

/// A UDP flow to port 53 (DNS) that was answered ends after this time without a datagram, or after
/// its idle timeout if that is shorter. A lookup has one answer.
pub const UDP_DNS_TIMEOUT: Duration = Duration::from_secs(10);

/// A UDP flow that was used within this time is not evicted from a full table.
pub const UDP_FLOW_HOLDS: Duration = Duration::from_secs(1);
