//! A host and a router that leads to any host: the kernel's router, or a stack in its place.
//!
//! The host is 192.0.2.1 and 2001:db8::1, the router 192.0.2.2 and 2001:db8::2. Behind the router
//! are 198.51.100.128/25 and 2001:db8:9::/48, with one host of the kernel's, or the stack, which
//! takes any address.

use std::process::Command;

use anyhow::Result;

use super::netns::Namespace;
use super::process::Process;
use super::world::{DEVICE, START, World};

/// A host behind the router.
pub(crate) const HOST: &str = "198.51.100.129";
/// A host behind the router.
pub(crate) const HOST6: &str = "2001:db8:9::9";

const BEHIND: &str = "198.51.100.128/25";
const BEHIND6: &str = "2001:db8:9::/48";

/// Where a program on the host is to be run.
pub(crate) struct Routed {
    place: Place,
    /// What answers for the hosts behind the router.
    servers: Vec<Process>,
}

enum Place {
    Kernel(Kernel),
    Stack(World),
}

/// Three namespaces in a row.
struct Kernel {
    near: Namespace,
    router: Namespace,
    far: Namespace,
}

impl Routed {
    /// With the kernel's router, and the kernel's hosts behind it.
    pub(crate) fn kernel() -> Result<Routed> {
        Ok(Routed { place: Place::Kernel(Kernel::new()?), servers: Vec::new() })
    }

    /// With a stack that takes any address.
    pub(crate) fn stack() -> Result<Routed> {
        let world = World::new()?;
        world.ns.ip(&format!("route add {BEHIND} dev {DEVICE}"))?;
        world.ns.ip(&format!("-6 route add {BEHIND6} dev {DEVICE}"))?;
        world.ns.ip(&format!("route add 224.0.0.0/4 dev {DEVICE}"))?;
        Ok(Routed { place: Place::Stack(world), servers: Vec::new() })
    }

    /// Starts the hosts: they answer questions for names at port 53 and connections at port 80.
    pub(crate) fn start_hosts(&mut self) -> Result<()> {
        let (first, second) = (format!("{HOST}:53"), format!("[{HOST6}]:53"));
        let limits = "net.ipv4.icmp_ratelimit=0,net.ipv6.icmp.ratelimit=0";
        let mut command = match &self.place {
            Place::Kernel(kernel) => {
                kernel.far.program(&["peer", "hosts", &first, "--and", &second])?
            }
            Place::Stack(world) => world.client(&["hosts", &first, "--sysctl", limits])?,
        };
        self.start("hosts", &mut command)
    }

    /// Starts an answerer of mDNS: on the router, or on the stack.
    pub(crate) fn start_mdns(&mut self) -> Result<()> {
        let words = ["mdns", "0.0.0.0:5353", "--interface", "192.0.2.2"];
        let mut command = match &self.place {
            Place::Kernel(kernel) => kernel.router.program(&[&["peer"], &words[..]].concat())?,
            Place::Stack(world) => world.client(&words)?,
        };
        self.start("mdns", &mut command)
    }

    fn start(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let mut process = Process::spawn(name, command)?;
        process.wait_line(START, |line| line == "ready")?;
        self.servers.push(process);
        Ok(())
    }

    /// This program with these words, to be run on the host.
    pub(crate) fn this_program(&self, words: &[&str]) -> Result<Command> {
        match &self.place {
            Place::Kernel(kernel) => kernel.near.program(words),
            Place::Stack(world) => world.ns.program(words),
        }
    }

    /// A command that will run on the host.
    pub(crate) fn command(&self, program: &str) -> Command {
        match &self.place {
            Place::Kernel(kernel) => kernel.near.command(program),
            Place::Stack(world) => world.ns.command(program),
        }
    }
}

impl Kernel {
    fn new() -> Result<Kernel> {
        let (near, router, far) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        near.ip(&format!("link add n0 type veth peer name r0 netns {}", router.name()))?;
        router.ip(&format!("link add r1 type veth peer name f0 netns {}", far.name()))?;
        for (ns, device, address, address6) in [
            (&near, "n0", "192.0.2.1/24", "2001:db8::1/64"),
            (&router, "r0", "192.0.2.2/24", "2001:db8::2/64"),
            (&router, "r1", "198.51.100.1/30", "2001:db8:1::1/64"),
            (&far, "f0", "198.51.100.2/30", "2001:db8:1::2/64"),
        ] {
            ns.ip(&format!("addr add {address} dev {device}"))?;
            ns.ip(&format!("-6 addr add {address6} dev {device} nodad"))?;
            ns.ip(&format!("link set {device} up"))?;
        }
        router.sysctl("net/ipv4/ip_forward", "1")?;
        router.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        for ns in [&router, &far] {
            ns.sysctl("net/ipv4/icmp_ratelimit", "0")?;
            ns.sysctl("net/ipv6/icmp/ratelimit", "0")?;
        }
        for (ns, prefix, by) in [
            (&near, BEHIND, "via 192.0.2.2"),
            (&near, BEHIND6, "via 2001:db8::2"),
            (&near, "224.0.0.0/4", "dev n0"),
            (&router, BEHIND, "via 198.51.100.2"),
            (&router, BEHIND6, "via 2001:db8:1::2"),
            (&far, "192.0.2.0/24", "via 198.51.100.1"),
            (&far, "2001:db8::/64", "via 2001:db8:1::1"),
        ] {
            ns.ip(&format!("route add {prefix} {by}"))?;
        }
        far.ip(&format!("addr add {HOST}/32 dev lo"))?;
        far.ip(&format!("-6 addr add {HOST6}/128 dev lo nodad"))?;
        Ok(Kernel { near, router, far })
    }
}
