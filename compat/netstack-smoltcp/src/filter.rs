//! Which packets reach the stack.

use std::fmt;
use std::net::IpAddr;

/// Says of a source and a destination whether their packets reach the stack.
pub type IpFilter<'a> = Box<dyn Fn(&IpAddr, &IpAddr) -> bool + Send + Sync + 'a>;

/// Filters, all of which a packet must pass. Without any, all packets do.
///
/// ```
/// use netstack_smoltcp::IpFilters;
/// let mut filters = IpFilters::with_non_broadcast();
/// let gateway: std::net::IpAddr = "192.0.2.1".parse()?;
/// filters.add_fn(move |_source, destination| *destination != gateway);
/// let [client, server] = ["192.0.2.9".parse()?, "198.51.100.7".parse()?];
/// assert!(filters.is_allowed(&client, &server));
/// assert!(!filters.is_allowed(&client, &gateway));
/// assert!(!filters.is_allowed(&client, &"255.255.255.255".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Default)]
pub struct IpFilters<'a> {
    filters: Vec<IpFilter<'a>>,
}

impl<'a> IpFilters<'a> {
    /// No filter.
    pub fn new() -> IpFilters<'a> {
        IpFilters::default()
    }

    /// One filter, which keeps out packets from or to an address that is no single host's:
    /// broadcast, multicast, and the unspecified address.
    pub fn with_non_broadcast() -> IpFilters<'a> {
        let mut filters = IpFilters::new();
        filters.add_fn(|source, destination| is_one_host(source) && is_one_host(destination));
        filters
    }

    /// Adds a filter.
    pub fn add(&mut self, filter: IpFilter<'a>) {
        self.filters.push(filter);
    }

    /// Adds a function as a filter.
    pub fn add_fn<F>(&mut self, filter: F)
    where
        F: Fn(&IpAddr, &IpAddr) -> bool + Send + Sync + 'a,
    {
        self.add(Box::new(filter));
    }

    /// Adds all of `filters`.
    pub fn add_all<I: IntoIterator<Item = IpFilter<'a>>>(&mut self, filters: I) {
        self.filters.extend(filters);
    }

    /// Whether packets from `src` to `dst` pass all filters.
    pub fn is_allowed(&self, src: &IpAddr, dst: &IpAddr) -> bool {
        self.filters.iter().all(|filter| filter(src, dst))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }
}

fn is_one_host(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(broadcast || ip.is_multicast() || ip.is_unspecified())
}

impl fmt::Debug for IpFilters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpFilters").field("filters", &self.filters.len()).finish()
    }
}
