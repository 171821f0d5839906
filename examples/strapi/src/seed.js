// Seeds 16 categories with 6 articles each, and a tag without articles. The texts are generated, and always the same.
const CATEGORIES = [
  'Architecture', 'Botany', 'Ceramics', 'Dance', 'Engineering', 'Film', 'Geology', 'History',
  'Illustration', 'Jazz', 'Kites', 'Literature', 'Music', 'Navigation', 'Optics', 'Poetry',
];
const SUBJECTS = ['A beginning', 'The tools', 'Masters at work', 'What it costs', 'A common mistake', 'Where to go next'];
const SENTENCES = [
  'Nobody who has tried it once forgets how quiet the room becomes.',
  'The first hour is spent on things that will be thrown away.',
  'A notebook helps, and so does a friend who asks the obvious.',
  'Prices differ from town to town, and from one winter to the next.',
  'Much of what was written about it a century ago is still true.',
  'There are two schools, and they have not spoken since.',
  'It looks like luck from outside.',
];

const sentences = (from, count) =>
  Array.from({ length: count }, (_, i) => SENTENCES[(from + i) % SENTENCES.length]).join(' ');

function article(subject, i, category, c) {
  return {
    title: `${category}: ${subject.toLowerCase()}`,
    slug: `${category}-${i + 1}`.toLowerCase(),
    summary: sentences(c + i, 2),
    body: sentences(c * i, 6),
    published: new Date(Date.UTC(2026, 0, 1 + i * CATEGORIES.length + c)).toISOString().slice(0, 10),
  };
}

module.exports = async function seed(strapi) {
  for (const [c, name] of CATEGORIES.entries()) {
    const data = { name, description: sentences(c, 1) };
    const { documentId } = await strapi.documents('api::category.category').create({ data });
    for (const [i, subject] of SUBJECTS.entries()) {
      const data = { ...article(subject, i, name, c), category: documentId };
      await strapi.documents('api::article.article').create({ data });
    }
  }
  await strapi.documents('api::tag.tag').create({ data: { name: 'read on Sundays' } });
};
