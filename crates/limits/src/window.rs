//! A sliding-window counter: how much was counted over the last window, never less than the truth.

/// Cells of a window. One more is kept: a cell counts until its end has left the window, so the sum is never below the
/// true use of any window, and room returns at most one cell late.
pub(crate) const CELLS: u64 = 20;
/// Cells that are kept.
pub(crate) const RING: u64 = CELLS + 1;

/// How long one cell is, in milliseconds.
pub(crate) fn cell_ms(window_seconds: u32) -> u64 {
    (u64::from(window_seconds) * 1_000 / CELLS).max(1)
}

/// Amounts by the time they were counted. `advance` before reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    cell_ms: u64,
    newest: u64,
    cells: [u64; RING as usize],
    total: u128,
}

impl Window {
    pub(crate) fn new(window_seconds: u32, now_ms: u64) -> Self {
        let cell_ms = cell_ms(window_seconds);
        Self {
            cell_ms,
            newest: now_ms / cell_ms,
            cells: [0; RING as usize],
            total: 0,
        }
    }

    /// With `total` counted evenly over the window before the cell of now, so that the first part of it leaves with that.
    pub(crate) fn used_up(window_seconds: u32, total: u64, now_ms: u64) -> Self {
        let mut window = Self::new(window_seconds, now_ms);
        let part = |cells: u64| (u128::from(total) * u128::from(cells) / u128::from(CELLS)) as u64;
        for back in 1..=CELLS {
            if let Some(cell) = window.newest.checked_sub(back) {
                window.set(cell, part(back) - part(back - 1));
            }
        }
        window
    }

    /// What another place has counted: each cell at its number modulo [`RING`].
    pub(crate) fn counted(window_seconds: u32, newest: u64, cells: [u64; RING as usize]) -> Self {
        Self {
            cell_ms: cell_ms(window_seconds),
            newest,
            total: cells.iter().map(|&cell| u128::from(cell)).sum(),
            cells,
        }
    }

    /// Forgets the cells that have left the window. A step back in time changes nothing.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        let newest = now_ms / self.cell_ms;
        if newest <= self.newest {
            return;
        }
        if newest - self.newest >= RING {
            self.cells = [0; RING as usize];
            self.total = 0;
        } else {
            for cell in self.newest + 1..=newest {
                self.set(cell, 0);
            }
        }
        self.newest = newest;
    }

    pub(crate) fn total(&self) -> u128 {
        self.total
    }

    /// Counts `amount` now; the answer names the cell for [`Window::replace`].
    pub(crate) fn add(&mut self, amount: u64) -> u64 {
        self.set(self.newest, self.at(self.newest).saturating_add(amount));
        self.newest
    }

    /// Puts `after` in the place of `before`, where it was counted; nothing once that cell has left the window.
    pub(crate) fn replace(&mut self, cell: u64, before: u64, after: u64) {
        if cell <= self.newest && self.newest - cell < RING {
            self.set(cell, self.at(cell).saturating_sub(before).saturating_add(after));
        }
    }

    /// Milliseconds until the total is at most `target`, if nothing more is counted.
    pub(crate) fn wait_ms(&self, target: u128, now_ms: u64) -> u64 {
        let mut left = self.total;
        if left <= target {
            return 0;
        }
        for cell in self.newest.saturating_sub(CELLS)..=self.newest {
            left -= u128::from(self.at(cell));
            if left <= target {
                return ((cell + RING) * self.cell_ms).saturating_sub(now_ms);
            }
        }
        RING * self.cell_ms
    }

    fn at(&self, cell: u64) -> u64 {
        self.cells[(cell % RING) as usize]
    }

    fn set(&mut self, cell: u64, amount: u64) {
        let place = &mut self.cells[(cell % RING) as usize];
        self.total = self.total - u128::from(*place) + u128::from(amount);
        *place = amount;
    }
}

#[cfg(test)]
mod tests;
