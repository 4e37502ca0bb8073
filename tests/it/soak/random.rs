//! A small reproducible source of numbers (splitmix64).

/// Gives the same numbers for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The numbers of one step: what an earlier step drew does not change them.
    pub(super) fn of_step(seed: u64, step: u64) -> Self {
        let mut mixed = Self(seed ^ step.wrapping_mul(0xd134_2543_de82_ef95));
        mixed.next();
        mixed
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a usize is no more than 64 bits");
        usize::try_from(self.next() % end).expect("below a usize")
    }

    /// True in `percent` of the cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`.
    pub(super) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        (!choices.is_empty()).then(|| &choices[self.below(choices.len())])
    }
}
