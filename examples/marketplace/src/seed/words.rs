//! The vocabulary of the generated rows.

type Skills = &'static [&'static str];

pub(super) const FIRST: &[&str] = &[
    "Ada", "Amina", "Anders", "Beatriz", "Chen", "Chloe", "Daniel", "Dewi", "Elif", "Emeka", "Fatima",
    "Felix", "Grace", "Hana", "Ines", "Ivan", "Jasmin", "Jonas", "Kofi", "Lena", "Luca", "Made", "Maria",
    "Mateo", "Mei", "Nadia", "Noah", "Olga", "Omar", "Priya", "Putri", "Rafael", "Rosa", "Samuel", "Sofia",
    "Tariq", "Thandi", "Tomas", "Yuki", "Zoe",
];

pub(super) const LAST: &[&str] = &[
    "Abebe",
    "Almeida",
    "Andersson",
    "Bauer",
    "Castillo",
    "Dubois",
    "Eriksen",
    "Fischer",
    "Garcia",
    "Haddad",
    "Hartono",
    "Ibrahim",
    "Jansen",
    "Kaya",
    "Kimura",
    "Kowalski",
    "Kumar",
    "Lim",
    "Lopez",
    "Mbeki",
    "Moreau",
    "Nguyen",
    "Novak",
    "Okafor",
    "Olsen",
    "Park",
    "Pereira",
    "Petrov",
    "Rahman",
    "Rossi",
    "Santoso",
    "Schmidt",
    "Silva",
    "Sato",
    "Tan",
    "Torres",
    "Wijaya",
    "Wong",
    "Yilmaz",
    "Zhang",
];

/// City, country, telephone prefix.
pub(super) const CITIES: &[(&str, &str, &str)] = &[
    ("Jakarta", "ID", "+62 21"),
    ("Denpasar", "ID", "+62 361"),
    ("Singapore", "SG", "+65"),
    ("Berlin", "DE", "+49 30"),
    ("Lisbon", "PT", "+351 21"),
    ("Lagos", "NG", "+234 1"),
    ("Nairobi", "KE", "+254 20"),
    ("Toronto", "CA", "+1 416"),
    ("Bogota", "CO", "+57 1"),
    ("Istanbul", "TR", "+90 212"),
    ("Seoul", "KR", "+82 2"),
    ("Warsaw", "PL", "+48 22"),
];

pub(super) const COMPANIES: &[&str] =
    &["Foods", "Logistics", "Studio", "Travel", "Health", "Books", "Bikes", "Energy", "Furniture", "Games"];

pub(super) const BUYERS: &[&str] = &[
    "Family business that sells online since last spring.",
    "We run three shops and a small warehouse.",
    "Start-up of nine people, looking for steady help.",
    "Agency that passes on more work than it can do.",
    "Non-profit; we pay on time and say thank you.",
];

pub(super) const FREELANCERS: &[&str] = &[
    "Ten years in the trade, the last four on my own. I ask many questions before I begin.",
    "I like small teams, clear briefs and short meetings. References on request.",
    "Available four days a week; usually I answer within two hours on working days.",
    "Came from a large agency; now I take one project at a time and finish it.",
];

pub(super) const TRADES: &[(&str, Skills)] = &[
    ("Web developer", &["html", "css", "typescript", "react", "svelte", "accessibility", "testing"]),
    ("Backend developer", &["rust", "go", "postgresql", "sqlite", "rest", "graphql", "docker"]),
    ("Designer", &["figma", "illustration", "branding", "typography", "icons", "prototyping"]),
    ("Writer", &["copywriting", "editing", "seo", "newsletters", "translation", "interviews"]),
    ("Data analyst", &["sql", "python", "dashboards", "statistics", "forecasting", "cleaning"]),
];

/// Category, tasks, skills.
pub(super) const CATEGORIES: &[(&str, Skills, Skills)] = &[
    (
        "web",
        &["Landing page", "Shop redesign", "Checkout flow", "Booking calendar", "Accessibility review"],
        &["html", "css", "typescript", "react", "svelte", "accessibility"],
    ),
    (
        "backend",
        &["Stock synchronisation", "Invoice service", "Payment integration", "Search service", "Data import"],
        &["rust", "go", "postgresql", "sqlite", "rest", "graphql"],
    ),
    (
        "design",
        &["Logo and colours", "Packaging design", "Icon set", "Poster series", "Style guide"],
        &["figma", "illustration", "branding", "typography", "icons"],
    ),
    (
        "writing",
        &["Product descriptions", "Monthly newsletter", "User manual", "Website texts", "Press kit"],
        &["copywriting", "editing", "seo", "newsletters", "translation"],
    ),
    (
        "data",
        &["Sales dashboard", "Customer survey", "Price comparison", "Demand forecast", "Address clean-up"],
        &["sql", "python", "dashboards", "statistics", "forecasting"],
    ),
];

pub(super) const SUBJECTS: &[&str] = &[
    "a bakery",
    "a bicycle workshop",
    "a ferry line",
    "a language school",
    "a small museum",
    "a plant nursery",
    "a board-game publisher",
    "a dental practice",
    "a chain of hostels",
    "a coffee roaster",
    "a solar installer",
    "a second-hand bookshop",
    "a dance festival",
    "a furniture maker",
    "a veterinary clinic",
    "a radio station",
];

pub(super) const NEEDS: &[&str] = &[
    "What we have has grown over the years and nobody dares to touch it any more.",
    "We begin from nothing: there are a few sketches and a list of wishes.",
    "An earlier attempt was given up half-way; its files are yours to use or to ignore.",
    "It is a small job with a fixed end, and we know well what we want.",
];

pub(super) const WAYS: &[&str] = &[
    "Please show us a first version after a week, so that we can change our minds early.",
    "One of us will answer questions every day between nine and noon.",
    "We prefer plain tools that our own people can look after later.",
];

pub(super) const ENDS: &[&str] = &[
    "Done means: in use, handed over, and explained in an hour's call.",
    "Paid in two parts, one at the start and one at the end.",
    "If it goes well there is a second part of about the same size.",
];

pub(super) const CURRENCIES: &[&str] = &["EUR", "EUR", "USD", "USD", "GBP"];

pub(super) const STATUSES: &[&str] = &[
    "open",
    "in_progress",
    "delivered",
    "completed",
    "completed",
    "completed",
    "completed",
    "completed",
    "cancelled",
];

pub(super) const REMARKS: &[&str] = &[
    "Questions came early, they were the right ones, and no answer had to be given twice.",
    "The hand-over was short and complete, and everything was explained to the people who use it.",
    "We would have liked an update a little more often, above all in the week before the end.",
    "The files are tidy and easy to take over, down to a page of notes for whoever comes next.",
];

pub(super) const CLOSINGS: &[&str] = &[
    "The next job of this kind goes to the same address.",
    "Price and time were as agreed at the start.",
    "Thank you from everybody here.",
];

/// The texts of reviews with this number of stars.
pub(super) fn opinions(stars: i64) -> Skills {
    match stars {
        5 => &["Excellent work, sooner than agreed.", "Could not have been better, we will be back."],
        4 => &["Good work, with a few small corrections.", "Solid result and pleasant to work with."],
        3 => &["In the end it was fine, though later than agreed.", "Does what it should and no more."],
        _ => &["Needed several rounds, and some things are still open.", "Not what we had agreed on."],
    }
}
