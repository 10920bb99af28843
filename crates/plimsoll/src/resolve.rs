//! From names to addresses: [`ToSocketAddrs`], and resolvers ([`Resolve`]).

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::stack::Stack;

/// The future of [`Resolve::resolve`].
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves names for the sockets of a stack; [`StackBuilder::resolver`] takes one. Without one the
/// host's resolver is used, as by std and tokio. Literal addresses never get here.
///
/// ```
/// use std::net::IpAddr;
/// use std::sync::Arc;
/// use plimsoll::{Resolve, Resolving, Stack, TcpListener, TcpStream};
///
/// /// A resolver for one name.
/// #[derive(Debug)]
/// struct Hosts;
///
/// impl Resolve for Hosts {
///     fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
///         Box::pin(async move {
///             match name {
///                 "echo.example" => Ok(vec![IpAddr::from([127, 0, 0, 1])]),
///                 _ => Err(std::io::Error::other(format!("{name} is not in the list"))),
///             }
///         })
///     }
/// }
///
/// let stack = Stack::builder().loopback_only().resolver(Arc::new(Hosts)).build()?;
/// let _listener = TcpListener::bind(&stack, "127.0.0.1:7")?;
/// let stream = TcpStream::connect(&stack, "echo.example:7")?;
/// assert_eq!(stream.peer_addr()?, "127.0.0.1:7".parse()?);
/// let refused = TcpStream::connect(&stack, "other.example:7").unwrap_err();
/// assert_eq!(refused.to_string(), "other.example is not in the list");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`StackBuilder::resolver`]: crate::StackBuilder::resolver
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of `name`, in the order in which they are to be tried. The future is polled by
    /// a task of the caller's runtime.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;

    /// The same for blocking sockets. Unless it is overridden it polls the future of
    /// [`resolve`](Self::resolve) on the calling thread, which is right for futures that need no
    /// runtime around them.
    ///
    /// # Errors
    /// As the future.
    fn resolve_blocking(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        block_on(self.resolve(name))
    }
}

/// Addresses that sockets connect to and listen on: one, several, or a name and a port. It replaces
/// the traits of std and tokio of the same name, and is implemented for the same types. Their
/// traits resolve names themselves, without [`Resolve`].
///
/// It is sealed: only this crate implements it. For another type that implements std's trait, pass
/// the addresses that `to_socket_addrs` gives.
pub trait ToSocketAddrs: ToTarget {}

impl<T: ToTarget + ?Sized> ToSocketAddrs for T {}

mod sealed {
    use std::io;
    use std::net::SocketAddr;

    /// The destinations of a connect.
    #[derive(Debug, PartialEq, Eq)]
    pub enum Target<'a> {
        Addresses(Vec<SocketAddr>),
        Name(&'a str, u16),
    }

    pub trait ToTarget {
        fn target(&self) -> io::Result<Target<'_>>;
    }
}

use sealed::{Target, ToTarget};

macro_rules! addresses {
    ($($type:ty),*) => {$(
        impl ToTarget for $type {
            fn target(&self) -> io::Result<Target<'_>> {
                Ok(Target::Addresses(vec![SocketAddr::from(*self)]))
            }
        }
    )*};
}

addresses!(SocketAddr, SocketAddrV4, SocketAddrV6);
addresses!((IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToTarget for [SocketAddr] {
    fn target(&self) -> io::Result<Target<'_>> {
        Ok(Target::Addresses(self.to_vec()))
    }
}

impl ToTarget for str {
    fn target(&self) -> io::Result<Target<'_>> {
        if let Ok(address) = self.parse() {
            return Ok(Target::Addresses(vec![address]));
        }
        let invalid = |what: &str| {
            let message =
                format!("'{self}' {what}; give an address or a name, and a port: host:80");
            io::Error::new(ErrorKind::InvalidInput, message)
        };
        let (name, port) = self.rsplit_once(':').ok_or_else(|| invalid("has no port"))?;
        let port = port.parse().map_err(|_| invalid("has a port that is no number up to 65535"))?;
        Ok(host(name, port))
    }
}

/// A host without its port, which may be a literal address.
fn host(name: &str, port: u16) -> Target<'_> {
    match name.parse::<IpAddr>() {
        Ok(ip) => Target::Addresses(vec![SocketAddr::new(ip, port)]),
        Err(_) => Target::Name(name, port),
    }
}

impl ToTarget for String {
    fn target(&self) -> io::Result<Target<'_>> {
        self.as_str().target()
    }
}

impl ToTarget for (&str, u16) {
    fn target(&self) -> io::Result<Target<'_>> {
        Ok(host(self.0, self.1))
    }
}

impl ToTarget for (String, u16) {
    fn target(&self) -> io::Result<Target<'_>> {
        Ok(host(&self.0, self.1))
    }
}

impl<T: ToTarget + ?Sized> ToTarget for &T {
    fn target(&self) -> io::Result<Target<'_>> {
        (**self).target()
    }
}

fn with_port(found: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
}

impl Stack {
    /// The resolver of this stack's sockets, if one was set.
    pub fn resolver(&self) -> Option<&Arc<dyn Resolve>> {
        self.inner().resolver()
    }

    /// Resolves `address`. For a name this calls the resolver, and blocks until it answers.
    /// `net::lookup_host` does not block.
    ///
    /// ```
    /// # let stack = plimsoll::Stack::builder().loopback_only().build()?;
    /// assert_eq!(stack.lookup_host("192.0.2.1:80")?, ["192.0.2.1:80".parse()?]);
    /// assert!(stack.lookup_host("192.0.2.1").is_err(), "no port");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if it is neither an address nor a name with a port; else what the resolver
    /// says.
    pub fn lookup_host(&self, address: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
        match address.target()? {
            Target::Addresses(addresses) => Ok(addresses),
            Target::Name(name, port) => match self.resolver() {
                Some(resolver) => Ok(with_port(resolver.resolve_blocking(name)?, port)),
                None => {
                    let found = std::net::ToSocketAddrs::to_socket_addrs(&(name, port))?;
                    Ok(found.collect())
                }
            },
        }
    }
}

/// As [`Stack::lookup_host`], for tasks.
#[cfg(feature = "tokio")]
pub(crate) async fn lookup_host(
    stack: &Stack,
    address: impl ToSocketAddrs,
) -> io::Result<Vec<SocketAddr>> {
    let (name, port) = match address.target()? {
        Target::Addresses(addresses) => return Ok(addresses),
        Target::Name(name, port) => (name.to_owned(), port),
    };
    // The type of `address` need not be `Send`, so drop it before the first await.
    drop(address);
    match stack.resolver() {
        Some(resolver) => Ok(with_port(resolver.resolve(&name).await?, port)),
        None => Ok(tokio::net::lookup_host((name, port)).await?.collect()),
    }
}

/// Polls `future` on this thread until it is ready.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// The thread's token alone does not do: the future may park the thread itself, and take it.
    struct Unpark {
        thread: Thread,
        woken: AtomicBool,
    }

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.woken.store(true, Ordering::Release);
            self.thread.unpark();
        }
    }

    let mut future = pin!(future);
    let unpark = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(unpark.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while !unpark.woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_addresses_are_not_looked_up() {
        let is = |target: io::Result<Target<'_>>, expected: &[&str]| {
            let expected = expected.iter().map(|text| text.parse().expect("an address")).collect();
            assert_eq!(target.expect("a target"), Target::Addresses(expected));
        };
        is("192.0.2.1:80".target(), &["192.0.2.1:80"]);
        is("[2001:db8::1]:80".target(), &["[2001:db8::1]:80"]);
        is(("192.0.2.1", 80).target(), &["192.0.2.1:80"]);
        is(("2001:db8::1".to_owned(), 80).target(), &["[2001:db8::1]:80"]);
        is((Ipv4Addr::LOCALHOST, 80).target(), &["127.0.0.1:80"]);
        let two = ["192.0.2.1:80", "192.0.2.2:81"].map(|text| text.parse().expect("an address"));
        is(two[..].target(), &["192.0.2.1:80", "192.0.2.2:81"]);
    }

    #[test]
    fn names_are() {
        let target = "host.example:80".to_owned();
        assert_eq!(target.target().expect("a name"), Target::Name("host.example", 80));
        assert_eq!(("host", 7).target().expect("a name"), Target::Name("host", 7));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.target().expect_err("no port").to_string();
        assert!(error("host.example").contains("'host.example' has no port"));
        assert!(error("host:http").contains("no number"));
        assert!(error("host:65536").contains("no number"));
    }

    #[test]
    fn a_future_that_another_thread_ends_is_waited_for() {
        let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
        let other = std::thread::spawn(move || receiver.recv().expect("a waker").wake());
        let mut polls = 0;
        let output = block_on(std::future::poll_fn(|cx| {
            polls += 1;
            if polls == 1 {
                sender.send(cx.waker().clone()).expect("it waits");
                return Poll::Pending;
            }
            Poll::Ready(polls)
        }));
        assert_eq!(output, 2);
        other.join().expect("it does not panic");
    }

    #[test]
    fn a_future_that_parks_the_thread_itself_loses_no_wake_up() {
        let mut polls = 0;
        let output = block_on(std::future::poll_fn(|cx| {
            polls += 1;
            if polls == 1 {
                cx.waker().wake_by_ref();
                // Takes the token that the wake-up has left.
                std::thread::park();
                return Poll::Pending;
            }
            Poll::Ready(polls)
        }));
        assert_eq!(output, 2);
    }

    #[test]
    fn the_wake_up_of_somebody_else_polls_nothing() {
        std::thread::current().unpark();
        let mut polls = 0;
        let output = block_on(std::future::poll_fn(|cx| {
            polls += 1;
            if polls == 1 {
                let (waker, thread) = (cx.waker().clone(), std::thread::current());
                std::thread::spawn(move || {
                    thread.unpark();
                    waker.wake();
                });
                return Poll::Pending;
            }
            Poll::Ready(polls)
        }));
        assert_eq!(output, 2);
    }
}
