//! Chunks: the memory behind slices, and the one writer that fills it.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::NonNull;

use crate::copying::copy;
use crate::drops;
use crate::pool::{CLASS_SIZES, FreeChunk, PoolInner};
use crate::ref_count::RefCount;
#[cfg(feature = "std")]
use crate::slab::{Class, SLABS};
use crate::slice::Slice;

/// The header in front of a chunk's bytes.
pub(crate) struct Header {
    /// Slices plus writer.
    refs: RefCount,
    /// Where the bytes begin.
    bytes: *mut u8,
    /// How many there are.
    capacity: usize,
    /// Index into [`CLASS_SIZES`]; nothing for memory that is not the pool's.
    class: usize,
    /// The pool that takes the chunk back after its last reference; `None` while it is free.
    home: Option<Arc<PoolInner>>,
    /// The function that frees the chunk after its last reference, if the memory is not the pool's.
    destroy: Option<unsafe fn(NonNull<Header>)>,
}

/// Where the bytes of a pool's chunk begin. Bytes need no alignment, so there is no gap.
const BYTES_AT: usize = size_of::<Header>();

fn layout(class: usize) -> Layout {
    let bytes = Layout::array::<u8>(CLASS_SIZES[class]).expect("size classes fit a layout");
    let (layout, at) = Layout::new::<Header>().extend(bytes).expect("size classes fit a layout");
    debug_assert_eq!(at, BYTES_AT);
    layout
}

/// Bytes of a chunk of the smallest class, with its header. Most connections that send and receive
/// little have one for a while, so it lies in slabs if there are any ([`crate::Leased`]).
#[cfg(feature = "std")]
pub(crate) const SMALLEST_CHUNK: usize = BYTES_AT + CLASS_SIZES[0];

/// Zeroed memory for a chunk of `class`.
fn take_memory(class: usize) -> NonNull<u8> {
    #[cfg(feature = "std")]
    if class == 0 {
        let block = SLABS.take(Class::CHUNK);
        // SAFETY: the block is ours alone, and that long.
        unsafe { block.write_bytes(0, SMALLEST_CHUNK) };
        return block;
    }
    let layout = layout(class);
    // SAFETY: the layout is never of size zero.
    let raw = unsafe { alloc_zeroed(layout) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Makes a chunk of `class`, all zeros.
pub(crate) fn allocate(class: usize) -> NonNull<Header> {
    let header = take_memory(class).cast::<Header>();
    // SAFETY: freshly allocated with room for a header at its start and the bytes behind it.
    unsafe {
        header.as_ptr().write(Header {
            refs: RefCount::new(),
            bytes: header.as_ptr().cast::<u8>().add(BYTES_AT),
            capacity: CLASS_SIZES[class],
            class,
            home: None,
            destroy: None,
        });
    }
    header
}

/// Gives the memory of a chunk back.
///
/// # Safety
/// There must be no other reference to the chunk.
pub(crate) unsafe fn deallocate(header: NonNull<Header>) {
    // SAFETY: the caller owns the chunk exclusively; its class is the one it was allocated with.
    unsafe {
        let class = (*header.as_ptr()).class;
        header.as_ptr().drop_in_place();
        #[cfg(feature = "std")]
        if class == 0 {
            return SLABS.give_back(Class::CHUNK, header.cast());
        }
        dealloc(header.as_ptr().cast(), layout(class));
    }
}

/// A chunk whose memory is a value of the application.
#[repr(C)]
struct Owned<T> {
    header: Header,
    owner: T,
}

/// Ends a chunk whose memory is a `T`.
///
/// # Safety
/// `header` is that of an `Owned<T>` in a box, and there is no other reference to it.
unsafe fn destroy<T>(header: NonNull<Header>) {
    // SAFETY: the header is the first field, so this is the box; the caller owns it.
    drop(unsafe { Box::from_raw(header.as_ptr().cast::<Owned<T>>()) });
}

/// A chunk whose memory is a value of the application, after its last reference is gone. The value
/// is dropped with it.
pub(crate) struct Foreign {
    header: NonNull<Header>,
    destroy: unsafe fn(NonNull<Header>),
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: it was made of the last reference, and with the function for a matching box.
        unsafe { (self.destroy)(self.header) };
    }
}

/// A counted reference to a chunk.
pub(crate) struct ChunkRef(NonNull<Header>);

// SAFETY: the header's shared part is atomic; bytes are written only by the one writer, behind all
// frozen ranges, and frozen ranges reach other threads only through a `Send` hand-over. An owner of
// foreign memory is `Send`, and all that others see of it are bytes that do not change.
unsafe impl Send for ChunkRef {}
// SAFETY: as above.
unsafe impl Sync for ChunkRef {}

impl ChunkRef {
    /// A chunk whose bytes are those of `owner`, which is dropped with the last reference.
    pub(crate) fn from_owner<T: AsRef<[u8]> + Send + 'static>(owner: T) -> ChunkRef {
        let header = Header {
            refs: RefCount::new(),
            bytes: NonNull::dangling().as_ptr(),
            capacity: 0,
            class: 0,
            home: None,
            destroy: Some(destroy::<T>),
        };
        header.refs.start();
        let raw = Box::into_raw(Box::new(Owned { header, owner }));
        // SAFETY: a box is never null.
        let chunk = ChunkRef(unsafe { NonNull::new_unchecked(raw.cast::<Header>()) });
        // SAFETY: the value stays where it is, alive and untouched, until `destroy`; nothing is
        // shared yet. If `as_ref` panics, `chunk` ends it.
        unsafe {
            let bytes = (*raw).owner.as_ref();
            let (at, len) = (bytes.as_ptr().cast_mut(), bytes.len());
            (*raw).header.bytes = at;
            (*raw).header.capacity = len;
        }
        chunk
    }

    /// The bytes of the chunk, from the front. Only a [`ChunkWriter`], which only a pool's chunk
    /// has, may write them.
    pub(crate) fn bytes(&self) -> *mut u8 {
        // SAFETY: `self` keeps the header alive; the field never changes once it is shared.
        unsafe { (*self.0.as_ptr()).bytes }
    }

    fn class(&self) -> usize {
        // SAFETY: as in `bytes`.
        unsafe { (*self.0.as_ptr()).class }
    }

    pub(crate) fn capacity(&self) -> usize {
        // SAFETY: as in `bytes`.
        unsafe { (*self.0.as_ptr()).capacity }
    }

    /// Whether this is the only reference to the chunk.
    pub(crate) fn is_only(&self) -> bool {
        self.refs().is_only()
    }

    pub(crate) fn same(&self, other: &ChunkRef) -> bool {
        self.0 == other.0
    }

    fn refs(&self) -> &RefCount {
        // SAFETY: `self` keeps the header alive.
        unsafe { &(*self.0.as_ptr()).refs }
    }
}

impl Clone for ChunkRef {
    #[inline]
    fn clone(&self) -> ChunkRef {
        self.refs().retain();
        ChunkRef(self.0)
    }
}

impl Drop for ChunkRef {
    #[inline]
    fn drop(&mut self) {
        if self.refs().release() {
            self.end();
        }
    }
}

impl ChunkRef {
    /// The last reference goes.
    #[inline(never)]
    fn end(&mut self) {
        // SAFETY: `self` keeps the header alive; the field never changes.
        if let Some(destroy) = unsafe { (*self.0.as_ptr()).destroy } {
            return drops::end(Foreign { header: self.0, destroy });
        }
        let class = self.class();
        // SAFETY: this was the last reference, so the header is exclusively ours.
        let home = unsafe { (*self.0.as_ptr()).home.take() };
        let free = FreeChunk(self.0);
        if let Some(home) = home {
            home.recycle(free, class);
        }
    }
}

/// The one writer of a chunk: fills it from the front and freezes what it wrote.
pub struct ChunkWriter {
    chunk: ChunkRef,
    written: usize,
}

impl ChunkWriter {
    pub(crate) fn start(header: NonNull<Header>, home: Arc<PoolInner>) -> ChunkWriter {
        // SAFETY: the pool hands over a chunk without other references.
        unsafe {
            (*header.as_ptr()).home = Some(home);
            (*header.as_ptr()).refs.start();
        }
        ChunkWriter { chunk: ChunkRef(header), written: 0 }
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> usize {
        self.capacity() - self.written
    }

    /// The size of the whole chunk, in bytes.
    pub fn capacity(&self) -> usize {
        self.chunk.capacity()
    }

    /// Copies as much of `data` as fits behind what was written before and freezes it. The returned
    /// slice is shorter than `data` if the chunk is full.
    pub fn append(&mut self, data: &[u8]) -> Slice {
        let len = data.len().min(self.remaining());
        copy(&mut self.spare_mut()[..len], &data[..len]);
        self.freeze(len)
    }

    /// As [`append`](Self::append), into `slice`, which grows, if it ends where the chunk was
    /// written to. Otherwise nothing is taken. Returns how many bytes were. It saves the counting
    /// of a reference that would be given back at once.
    #[inline]
    pub fn extend(&mut self, slice: &mut Slice, data: &[u8]) -> usize {
        let len = data.len().min(self.remaining());
        if !slice.extends(&self.chunk, self.written) {
            return 0;
        }
        copy(&mut self.spare_mut()[..len], &data[..len]);
        self.written += len;
        slice.grow(len);
        len
    }

    /// The bytes behind what was written, to be filled and then frozen with
    /// [`freeze`](Self::freeze). Their content is unspecified (but initialised).
    pub fn spare_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range lies within the chunk and behind every frozen range; `&mut self` is the
        // only way to write; the memory was zeroed when it was allocated.
        unsafe {
            core::slice::from_raw_parts_mut(self.chunk.bytes().add(self.written), self.remaining())
        }
    }

    /// Begins again at the front if no slice refers to the chunk any more, so that a device which
    /// reads one packet at a time stays within memory that is in the cache. Returns whether it did.
    pub fn rewind(&mut self) -> bool {
        let only = self.chunk.is_only();
        if only {
            self.written = 0;
        }
        only
    }

    /// Freezes the next `len` bytes.
    ///
    /// # Panics
    /// If `len` exceeds [`remaining`](Self::remaining).
    pub fn freeze(&mut self, len: usize) -> Slice {
        assert!(len <= self.remaining(), "cannot freeze more bytes than the chunk has");
        let slice = Slice::new(self.chunk.clone(), self.written, len);
        self.written += len;
        slice
    }
}

impl core::fmt::Debug for ChunkWriter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ChunkWriter({}/{})", self.written, self.capacity())
    }
}
