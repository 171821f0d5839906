//! The initial rows of the services: generated, deterministic, and consistent with each other.
//!
//! Services don't call each other for their rows. Each generates the rows of others that it needs by the same
//! rules, so that an order refers to a posting that exists and to its buyer. `words.rs` has the vocabulary.

mod words;

pub(crate) const BUYERS: i64 = 100;
pub(crate) const FREELANCERS: i64 = 215;
pub(crate) const CATALOGS: i64 = 1000;
pub(crate) const ORDERS: i64 = 1509;

/// 2025-01-06 08:00 UTC, when the marketplace opened.
const OPENING: i64 = 1_736_150_400;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// A buyer or a freelancer. Buyers have the lower IDs.
pub(crate) struct User {
    pub(crate) id: i64,
    pub(crate) buyer: bool,
    pub(crate) admin: bool,
    pub(crate) name: String,
    pub(crate) email: String,
    pub(crate) phone: String,
    pub(crate) city: &'static str,
    pub(crate) country: &'static str,
    /// The company of a buyer, the trade of a freelancer.
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) hourly_rate: i64,
    pub(crate) skills: Vec<&'static str>,
    /// Seconds since 1970.
    pub(crate) joined: i64,
}

/// A job posting.
pub(crate) struct Catalog {
    pub(crate) id: i64,
    pub(crate) buyer: i64,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) category: &'static str,
    pub(crate) price: i64,
    pub(crate) currency: &'static str,
    pub(crate) skills: Vec<&'static str>,
    pub(crate) created: i64,
    pub(crate) open: bool,
}

/// An order of a posting, with payment and review.
pub(crate) struct Order {
    pub(crate) id: i64,
    pub(crate) catalog: i64,
    pub(crate) freelancer: i64,
    pub(crate) buyer: i64,
    pub(crate) status: &'static str,
    pub(crate) created: i64,
    pub(crate) amount: i64,
    pub(crate) currency: &'static str,
    pub(crate) method: &'static str,
    pub(crate) paid: Option<i64>,
    pub(crate) review: Option<(i64, String)>,
}

/// SplitMix64, a small generator with the same output on every machine.
struct Random(u64);

impl Random {
    /// Creates the generator of one row, so that a new field of one row does not change all the others.
    fn of(table: u64, id: i64) -> Self {
        Self(
            table.wrapping_mul(0xA076_1D64_78BD_642F) ^ id.unsigned_abs().wrapping_mul(0xE703_7ED1_A0B4_28DB),
        )
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`, inclusive.
    fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = high.abs_diff(low) + 1;
        low + (self.next() % span).cast_signed()
    }

    fn one_in(&mut self, count: i64) -> bool {
        self.between(1, count) == 1
    }

    fn pick<T: Copy>(&mut self, words: &[T]) -> T {
        let last = i64::try_from(words.len()).unwrap_or(1) - 1;
        words[usize::try_from(self.between(0, last)).unwrap_or(0)]
    }

    /// Returns several different words, in the order of the list.
    fn pick_some(&mut self, words: &[&'static str], count: i64) -> Vec<&'static str> {
        let mut left = words.to_vec();
        while i64::try_from(left.len()).is_ok_and(|len| len > count) {
            let last = left.len() - 1;
            left.remove(usize::try_from(self.next() % (last as u64 + 1)).unwrap_or(last));
        }
        left
    }
}

/// All users, by id.
pub(crate) fn users() -> impl Iterator<Item = User> {
    (1..=BUYERS + FREELANCERS).map(user)
}

fn user(id: i64) -> User {
    let random = &mut Random::of(1, id);
    let buyer = id <= BUYERS;
    let (first, last) = (random.pick(words::FIRST), random.pick(words::LAST));
    let (city, country, prefix) = random.pick(words::CITIES);
    let (trade, skills) = random.pick(words::TRADES);
    let count = random.between(3, 5);
    User {
        id,
        buyer,
        admin: random.one_in(10),
        name: format!("{first} {last}"),
        email: format!("{}.{}{id}@example.org", first.to_lowercase(), last.to_lowercase()),
        phone: format!("{prefix} 555 {:04}", random.between(0, 9999)),
        city,
        country,
        title: if buyer { company(random, last) } else { trade.into() },
        about: random.pick(if buyer { words::BUYERS } else { words::FREELANCERS }).into(),
        hourly_rate: random.between(4, 30) * 5,
        skills: random.pick_some(skills, count),
        joined: OPENING + random.between(0, 120 * DAY),
    }
}

fn company(random: &mut Random, last: &str) -> String {
    format!("{last} {}", random.pick(words::COMPANIES))
}

/// All postings, by ID. Their times increase with the ID.
pub(crate) fn catalogs() -> impl Iterator<Item = Catalog> {
    (1..=CATALOGS).map(catalog)
}

fn catalog(id: i64) -> Catalog {
    let random = &mut Random::of(2, id);
    let (category, tasks, skills) = random.pick(words::CATEGORIES);
    let (task, subject) = (random.pick(tasks), random.pick(words::SUBJECTS));
    let count = random.between(2, 4);
    let (need, way, end) = (random.pick(words::NEEDS), random.pick(words::WAYS), random.pick(words::ENDS));
    Catalog {
        id,
        buyer: buyer_of(id),
        title: format!("{task} for {subject}"),
        description: format!("{need} {way} {end}"),
        category,
        price: random.between(8, 400) * 10,
        currency: random.pick(words::CURRENCIES),
        skills: random.pick_some(skills, count),
        created: OPENING + 121 * DAY + id * 6 * HOUR + random.between(0, 5 * HOUR),
        open: random.one_in(3),
    }
}

/// Returns the buyer of a posting. Most buyers have several postings, buyer 5 has one and buyer 8 none.
fn buyer_of(catalog: i64) -> i64 {
    let buyer = match catalog {
        1..=BUYERS => catalog,
        ..=200 => catalog - BUYERS,
        _ => Random::of(3, catalog).between(1, BUYERS),
    };
    match (buyer, catalog) {
        (5, 5) => 5,
        (5 | 8, _) => 1 + catalog % 4,
        _ => buyer,
    }
}

/// All orders, by ID. Their times increase with the ID.
pub(crate) fn orders() -> impl Iterator<Item = Order> {
    (1..=ORDERS).map(order)
}

fn order(id: i64) -> Order {
    let random = &mut Random::of(4, id);
    let catalog = catalog(random.between(1, CATALOGS));
    let status = random.pick(words::STATUSES);
    let created = OPENING + 380 * DAY + id * 2 * HOUR + random.between(0, HOUR);
    let paid = matches!(status, "delivered" | "completed").then(|| created + random.between(DAY, 20 * DAY));
    let stars = random.pick(&[5, 5, 5, 4, 4, 3, 2, 1]);
    let (opinion, remark) = (random.pick(words::opinions(stars)), random.pick(words::REMARKS));
    let opinion = format!("{opinion} {remark} {}", random.pick(words::CLOSINGS));
    Order {
        id,
        catalog: catalog.id,
        freelancer: random.between(BUYERS + 1, BUYERS + FREELANCERS),
        buyer: catalog.buyer,
        status,
        created,
        amount: catalog.price * random.between(90, 110) / 100,
        currency: catalog.currency,
        method: random.pick(&["card", "card", "transfer", "wallet"]),
        paid,
        review: (status == "completed" && !random.one_in(8)).then_some((stars, opinion)),
    }
}
