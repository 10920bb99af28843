//! The tables of section 4 of docs/recovery.md, row by row.
//!
//! Rows are taken from top to bottom. A row applies if its guard is true; its effect determines the
//! continuation. A name is that of the row on the page.

use super::actions::Marks;
use super::run::Run;
use super::{Permission, RecoveryState};
use crate::counters::Counter;
use RecoveryState::{Cwr, Disorder, Loss, Open, Recovery};

/// One row.
struct Row {
    name: &'static str,
    guard: fn(&Run) -> bool,
    effect: fn(&mut Run) -> Then,
}

/// The continuation after a row that applied.
enum Then {
    /// The next row.
    Next,
    /// No other row.
    End,
    /// The first row of another table.
    Go(Table),
}

/// A table.
#[derive(Clone, Copy)]
enum Table {
    EveryAck,
    Open,
    Recovery,
    Loss,
    /// The last rows of the one for Loss.
    EndOfLoss,
}

impl Table {
    fn rows(self) -> &'static [Row] {
        match self {
            Table::EveryAck => &EVERY_ACK,
            Table::Open => &OPEN,
            Table::Recovery => &RECOVERY,
            Table::Loss => &LOSS,
            Table::EndOfLoss => &END_OF_LOSS,
        }
    }
}

impl Run<'_> {
    /// Step 8 of section 3: walks the tables.
    pub(super) fn walk_tables(&mut self) {
        let mut table = Some(Table::EveryAck);
        while let Some(current) = table.take() {
            for row in current.rows() {
                if !(row.guard)(self) {
                    continue;
                }
                self.flight.note_row(row.name);
                match (row.effect)(self) {
                    Then::Next => {}
                    Then::End => return,
                    Then::Go(other) => {
                        table = Some(other);
                        break;
                    }
                }
            }
        }
    }

    /// The sign of rows R1 to R3: an ACK of a part answers a copy that left before the first
    /// retransmission.
    fn is_delayed_part(&self) -> bool {
        self.facts.advanced && self.is_delayed()
    }

    /// F-RTO runs, and new data has left since the timeout.
    fn frto_has_sent_new(&self) -> bool {
        self.flight.frto && self.flight.recovery_point < self.conn.nxt
    }
}

const ALWAYS: fn(&Run) -> bool = |_| true;

static EVERY_ACK: [Row; 7] = [
    Row {
        name: "A1",
        guard: ALWAYS,
        effect: |run| {
            run.flight.permission = Permission::None;
            Then::Next
        },
    },
    Row {
        name: "A2",
        guard: |run| run.facts.ece,
        effect: |run| {
            run.flight.undo.remember_ssthresh(0);
            Then::Next
        },
    },
    Row {
        name: "A3",
        guard: |run| run.facts.advanced && run.flight.board.has_reneged(),
        effect: |run| {
            run.wait_for_reneging();
            Then::End
        },
    },
    Row {
        name: "A4",
        guard: |run| run.is_in(&[Open]),
        effect: |run| {
            run.flight.undo.forget_first_retrans();
            Then::Go(Table::Open)
        },
    },
    Row {
        name: "A5",
        guard: |run| run.is_in(&[Cwr]) && run.flight.recovery_point < run.facts.una,
        effect: |run| {
            run.end_reduction();
            run.enter(Open);
            Then::Go(Table::Open)
        },
    },
    Row {
        name: "A6",
        guard: |run| run.is_in(&[Recovery]) && run.flight.recovery_point <= run.facts.una,
        effect: |run| {
            run.flight.board.clear_duplicates();
            run.try_full_undo(Counter::TcpFullUndo);
            if run.must_stay() {
                run.forget_finished_retransmissions();
                return Then::End;
            }
            run.end_reduction();
            run.enter(Open);
            Then::Go(Table::Open)
        },
    },
    Row {
        name: "A7",
        guard: ALWAYS,
        effect: |run| {
            Then::Go(match run.flight.state {
                Open | Disorder | Cwr => Table::Open,
                Recovery => Table::Recovery,
                Loss => Table::Loss,
            })
        },
    },
];

static OPEN: [Row; 8] = [
    Row {
        name: "O1",
        guard: |run| !run.conn.sack,
        effect: |run| {
            if run.facts.advanced {
                run.flight.board.clear_duplicates();
            }
            run.add_duplicates();
            Then::Next
        },
    },
    Row {
        name: "O2",
        guard: |run| run.is_in(&[Open, Disorder]) && run.is_all_named(),
        effect: |run| {
            run.undo(Marks::Keep, Counter::TcpDsackUndo);
            run.flight.rack.on_dsack_undo();
            Then::Next
        },
    },
    Row {
        name: "O3",
        guard: ALWAYS,
        effect: |run| {
            run.detect_loss();
            Then::Next
        },
    },
    Row {
        name: "O4",
        guard: |run| !run.is_lost() && run.facts.ece && run.is_in(&[Open, Disorder]),
        effect: |run| {
            run.begin_cwr_by_marks();
            Then::End
        },
    },
    Row {
        name: "O5",
        guard: |run| !run.is_lost() && run.facts.ece && run.is_in(&[Cwr]),
        effect: |run| {
            run.flight.undo.remember_ssthresh(0);
            Then::End
        },
    },
    Row {
        name: "O6",
        guard: |run| !run.is_lost(),
        effect: |run| {
            run.forget_finished_retransmissions();
            if !run.is_in(&[Cwr]) {
                run.settle();
            }
            Then::End
        },
    },
    Row {
        name: "O7",
        guard: |run| run.is_in(&[Open, Disorder]) && run.lost_mtu_probe().is_some(),
        effect: |run| {
            run.fail_mtu_probe();
            Then::End
        },
    },
    Row {
        name: "O8",
        guard: ALWAYS,
        effect: |run| {
            run.begin_recovery();
            run.flight.permission = Permission::Lost;
            Then::End
        },
    },
];

static RECOVERY: [Row; 9] = [
    Row {
        name: "R1",
        guard: |run| run.is_delayed_part(),
        effect: |run| {
            run.learn_reordering(run.conn.una, Counter::TcpTsReorder);
            Then::Next
        },
    },
    Row {
        name: "R2",
        guard: |run| run.is_delayed_part() && run.flight.board.retrans_out() > 0,
        effect: |_| Then::End,
    },
    Row {
        name: "R3",
        guard: |run| run.is_delayed_part(),
        effect: |run| {
            if run.conn.sack {
                // Detection skips ranges that are marked lost already: it starts the timer for the
                // others, even if the delivered segments are not new to RACK.
                run.flight.rack.on_undo();
                run.detect_loss();
            }
            run.forget_finished_retransmissions();
            run.undo(Marks::Drop, Counter::TcpPartialUndo);
            run.settle();
            // With SACK, late segments are not judged by the ACK that shows them to be late.
            // Without, the duplicates still counted do not identify their segments, so they are
            // judged.
            if run.conn.sack { Then::End } else { Then::Next }
        },
    },
    Row {
        name: "R4",
        guard: |run| !run.conn.sack && !run.facts.advanced,
        effect: |run| {
            run.add_duplicates();
            Then::Next
        },
    },
    Row {
        name: "R5",
        guard: |run| run.is_all_named(),
        effect: |run| {
            run.undo(Marks::Keep, Counter::TcpDsackUndo);
            run.flight.rack.on_dsack_undo();
            run.forget_finished_retransmissions();
            run.settle();
            Then::Next
        },
    },
    Row {
        name: "R6",
        guard: ALWAYS,
        effect: |run| {
            run.detect_loss();
            Then::Next
        },
    },
    Row { name: "R7", guard: |run| run.facts.undone && !run.is_lost(), effect: |_| Then::End },
    Row {
        name: "R8",
        guard: |run| run.facts.undone,
        effect: |run| {
            run.begin_recovery();
            Then::Next
        },
    },
    Row {
        name: "R9",
        guard: ALWAYS,
        effect: |run| {
            run.flight.permission = Permission::Lost;
            Then::End
        },
    },
];

static LOSS: [Row; 7] = [
    Row {
        name: "L1",
        guard: |run| run.facts.advanced && (run.is_delayed() || run.is_all_named()),
        effect: |run| {
            run.undo_timeout();
            if run.conn.sack {
                run.enter(Open);
            } else if run.must_stay() {
                run.forget_finished_retransmissions();
            }
            Then::Go(Table::EndOfLoss)
        },
    },
    Row {
        name: "L2",
        guard: |run| run.flight.frto && run.delivers_original(),
        effect: |run| {
            run.undo_timeout();
            run.cx.counters.bump(Counter::TcpSpuriousRtos);
            if run.must_stay() {
                run.forget_finished_retransmissions();
            } else {
                run.enter(Open);
            }
            Then::Go(Table::EndOfLoss)
        },
    },
    Row {
        name: "L3",
        guard: |run| run.frto_has_sent_new() && (run.facts.sacked.sacked || run.duplicates() > 0),
        effect: |run| {
            run.flight.frto = false;
            Then::Next
        },
    },
    Row {
        name: "L4",
        guard: |run| {
            let (point, una) = (run.flight.recovery_point, run.facts.una);
            let sent_nothing = run.flight.frto && point == run.conn.nxt;
            sent_nothing && run.facts.advanced && una < point
        },
        effect: |run| {
            let open = run.conn.nxt < run.conn.window_end(run.facts.una);
            if open && run.conn.has_unsent() {
                run.flight.permission = Permission::NewFirst;
                return Then::Go(Table::EndOfLoss);
            }
            run.flight.frto = false;
            Then::Next
        },
    },
    Row {
        name: "L5",
        guard: |run| run.flight.recovery_point <= run.facts.una,
        effect: |run| {
            run.try_full_undo(Counter::TcpLossUndo);
            if run.must_stay() {
                run.forget_finished_retransmissions();
            } else {
                run.enter(Open);
            }
            Then::Go(Table::EndOfLoss)
        },
    },
    Row {
        name: "L6",
        guard: |run| !run.conn.sack,
        effect: |run| {
            if run.flight.recovery_point < run.conn.nxt && run.duplicates() > 0 {
                run.add_duplicates();
            } else if run.facts.advanced {
                run.flight.board.clear_duplicates();
            }
            Then::Next
        },
    },
    Row {
        name: "L7",
        guard: ALWAYS,
        effect: |run| {
            run.flight.permission = Permission::Lost;
            Then::Go(Table::EndOfLoss)
        },
    },
];

static END_OF_LOSS: [Row; 2] = [
    Row {
        name: "L8",
        guard: ALWAYS,
        effect: |run| {
            run.detect_loss();
            Then::Next
        },
    },
    Row {
        name: "L9",
        guard: |run| run.is_in(&[Open]) || run.found_lost_again(),
        effect: |_| Then::Go(Table::Open),
    },
];

/// The names of all rows.
#[cfg(test)]
pub(super) fn names() -> std::vec::Vec<&'static str> {
    let tables = [Table::EveryAck, Table::Open, Table::Recovery, Table::Loss, Table::EndOfLoss];
    tables.iter().flat_map(|table| table.rows()).map(|row| row.name).collect()
}
