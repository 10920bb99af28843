//! The settings of a stack and the options of a socket, by name, each with a number. Times are
//! microseconds, switches 0 and 1.

/// Stands for "as the stack's setting says" where an option can say that.
pub const NONE: u64 = u64::MAX;

macro_rules! knobs {
    ($(#[$doc:meta])* $name:ident { $($variant:ident: [$($value:expr),* $(,)?],)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are those of the engine")]
        pub enum $name { $($variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Values that are worth trying.
            pub fn values(self) -> &'static [u64] {
                match self { $($name::$variant => &[$($value),*],)* }
            }
        }
    };
}

knobs! {
    /// A setting of the stack. The values begin with Linux's default.
    Setting {
        SndbufRaw: [0, 1, 2048],
        RmemMin: [4096, 256, 16_384],
        RmemDefault: [131_072, 4096, 20_000, 65_536, 1_000_000],
        RmemMax: [33_554_432, 65_536, 131_072, 1_000_000],
        WmemMin: [4096, 1024, 65_536],
        WmemDefault: [16_384, 4096, 65_536, 1_000_000],
        WmemMax: [4_194_304, 16_384, 262_144],
        ModerateRcvbuf: [1, 0],
        Sack: [1, 0],
        Dsack: [1, 0],
        Timestamps: [1, 0],
        WindowScaling: [1, 0],
        SynRetries: [6, 1, 3],
        SynLinearTimeouts: [4, 0, 1],
        SynackRetries: [5, 1, 2],
        Retries2: [15, 2, 5],
        OrphanRetries: [0, 1, 3],
        KeepaliveTime: [7_200_000_000, 1_000_000, 60_000_000],
        KeepaliveIntvl: [75_000_000, 500_000, 5_000_000],
        KeepaliveProbes: [9, 1, 3],
        FinTimeout: [60_000_000, 1_000_000],
        RtoMin: [200_000, 5_000, 50_000, 1_000_000],
        RtoMax: [120_000_000, 2_000_000, 10_000_000],
        CongestionControl: [1, 0],
        SlowStartAfterIdle: [1, 0],
        Reordering: [3, 1, 2, 10],
        MaxReordering: [300, 3, 30],
        Recovery: [1, 0, 2, 3, 4, 7],
        EarlyRetrans: [3, 0, 1, 4],
        Frto: [2, 0, 1],
        Ecn: [2, 0, 1],
        EcnFallback: [1, 0],
        Initcwnd: [10, 1, 2, 3, 100],
        MinTsoSegs: [2, 1, 4, 16],
        TsoRttLog: [9, 0, 5, 12],
        TsoWinDivisor: [3, 0, 1, 8],
        TsoDefer: [1, 0],
        NagleBound: [0, 1],
        TsoTail: [3, 0, 1, 2],
        Autocorking: [1, 0],
        LimitOutputBytes: [4_194_304, 6000, 65_536],
        PacingSsRatio: [200, 100, 1000],
        PacingCaRatio: [120, 100, 800],
        MinSndMss: [48, 88, 536],
        InvalidRatelimit: [500_000, 0, 5_000],
        DelackMin: [40_000, 0, 5_000],
        DelackMax: [200_000, 40_000, 500_000],
        BacklogAckDefer: [1, 0],
        Pingpong: [1, 0],
        CompSackDelay: [1_000, 0, 10_000],
        CompSackSlack: [100, 0],
        CompSackNr: [44, 0, 1, 5],
        CompSackRttPercent: [5, 1, 33, 100],
        NotsentLowat: [4_294_967_295, 1, 4096, 16_384],
        AbortOnOverflow: [0, 1],
        DecisionLog: [0, 16],
        Rfc1337: [0, 1],
    }
}

knobs! {
    /// An option of a socket.
    Opt {
        NoDelay: [1, 0],
        Cork: [1, 0],
        ZeroCopy: [1, 0],
        Autocork: [1, 0, NONE],
        TsoTail: [0, 1, 2, 3, NONE],
        MaxPacingRate: [100_000, 10_000, 1_000_000, 50_000_000, NONE],
        DecisionLog: [0, 8, 64],
        TxTimestamps: [0, 1, 2, 4, 7, 15],
        Tos: [0, 16, 255],
        Ttl: [0, 1, 64],
        SynRetries: [0, 1, 3],
        DeferAccept: [0, 1, 3],
        MaxSeg: [0, 48, 500, 1000, 1400, 9000],
        KeepAlive: [1, 0],
        KeepIdle: [1_000_000, 10_000_000],
        KeepIntvl: [500_000, 1_000_000],
        KeepCnt: [1, 2, 5],
        UserTimeout: [0, 500_000, 3_000_000, 30_000_000],
        SndBuf: [1, 2304, 8192, 65_536, 1_000_000],
        RcvBuf: [1, 1000, 8192, 65_536, 1_000_000],
        Congestion: [0, 1],
        NotsentLowat: [0, 1, 2000, 16_384],
        RcvLowat: [0, 1, 1000, 20_000, 200_000],
        OobInline: [1, 0],
        QuickAck: [1, 0],
        Linger2: [0, 1_000_000, 100_000_000],
        // Before the open only.
        RouteQuickAck: [1, 0],
        FastopenNoCookie: [1, 0],
        Md5Key: [1],
    }
}
