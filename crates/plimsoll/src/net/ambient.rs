//! The stack of the task, of the thread, of the process.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{PoisonError, RwLock};
use std::task::{Context, Poll};

use crate::stack::Stack;

thread_local! {
    /// Of the task that is polled here, or else of the thread.
    static HERE: RefCell<Option<Stack>> = const { RefCell::new(None) };
}

static DEFAULT: RwLock<Option<Stack>> = RwLock::new(None);

/// The stack that sockets without a stack argument take here: see [the module](crate::net).
///
/// # Errors
/// `NotFound` if there is none.
pub fn current() -> io::Result<Stack> {
    // The thread may be about to end, and have nothing of its own any more.
    let here = HERE.try_with(|here| here.borrow().clone()).ok().flatten();
    here.or_else(|| DEFAULT.read().unwrap_or_else(PoisonError::into_inner).clone()).ok_or_else(
        || {
            let message = "no stack: this task is in no scope of a stack, its thread has entered \
                           none and the process has no default; use plimsoll::net::scope, enter or \
                           set_default";
            io::Error::new(ErrorKind::NotFound, message)
        },
    )
}

/// Makes `stack` the default of the process, or takes the default away. Returns the one before. A
/// default keeps its stack alive.
///
/// ```
/// let stack = plimsoll::Stack::builder().loopback_only().build()?;
/// plimsoll::net::set_default(Some(&stack));
/// assert!(plimsoll::net::current().is_ok());
/// plimsoll::net::set_default(None);
/// assert!(plimsoll::net::current().is_err());
/// # Ok::<(), plimsoll::BuildError>(())
/// ```
pub fn set_default(stack: Option<&Stack>) -> Option<Stack> {
    let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut default, stack.cloned())
}

/// Makes `stack` the one of this thread until the result is dropped. A runtime with several threads
/// enters it on each of them:
///
/// ```
/// # let stack = plimsoll::Stack::builder().loopback_only().build()?;
/// let runtime = tokio::runtime::Builder::new_current_thread()
///     .on_thread_start(move || std::mem::forget(plimsoll::net::enter(&stack)))
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the thread leaves the stack when this is dropped"]
pub fn enter(stack: &Stack) -> Entered {
    Entered { before: exchange(Some(stack.clone())), of_this_thread: PhantomData }
}

/// The thread has a stack. See [`enter`].
pub struct Entered {
    before: Option<Stack>,
    of_this_thread: PhantomData<*mut ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(exchange(self.before.take()));
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

/// Puts `stack` into the place of the thread's. The one before is the caller's to drop: it may be
/// the last handle, and whatever ends with it must find the place free.
fn exchange(stack: Option<Stack>) -> Option<Stack> {
    HERE.try_with(|here| here.replace(stack)).ok().flatten()
}

/// `future`, with `stack` as its task's stack. Tasks that it spawns have the stack only if
/// [`spawn`] spawns them.
pub fn scope<F: Future>(stack: &Stack, future: F) -> Scope<F> {
    Scope { stack: stack.clone(), future }
}

/// Spawns `future` on the runtime of tokio that this runs on, in the scope of the stack that this
/// has: what `tokio::spawn` does not do.
///
/// # Errors
/// As [`current`].
///
/// # Panics
/// As `tokio::spawn`, outside of a runtime.
pub fn spawn<F>(future: F) -> io::Result<tokio::task::JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Ok(tokio::spawn(scope(&current()?, future)))
}

pin_project_lite::pin_project! {
    /// A future in the scope of a stack. See [`scope`].
    #[must_use = "it does nothing until it is polled"]
    pub struct Scope<F> {
        stack: Stack,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = enter(this.stack);
        this.future.poll(cx)
    }
}

impl<F> fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stack", &self.stack).finish_non_exhaustive()
    }
}
