//! Tells valgrind when to look.
#![allow(unsafe_code, reason = "what it calls is unsafe")]

/// What a client request of valgrind is made of: the number of the request, and five arguments.
type Request = [u64; 6];

/// `CALLGRIND_START_INSTRUMENTATION`.
const START_INSTRUMENTATION: u64 = 0x4354_0000 + 4;

/// Has callgrind look from now on, if the program runs under it; nothing happens otherwise.
pub(crate) fn look() {
    let request: Request = [START_INSTRUMENTATION, 0, 0, 0, 0, 0];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the rotations add up to two whole turns, and an exchange of a register with itself
    // does nothing. Valgrind reads the request, which lives that long, and writes to rdx.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_u64 => _,
            options(nostack),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = request;
}
