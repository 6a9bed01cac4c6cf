// The scores of Sphinx, except for `score`: the pages of the reference, the examples, the
// benchmarks, the changelog and the vocabulary are after guides with the same words. A name
// of the API keeps its score.
const SECONDARY = /^(reference\/|examples\/|changelog|glossary|design|.*benchmarks)/;

var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) =>
    kind !== "object" && SECONDARY.test(page) ? score - 10 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
