// Why somebody gets an amount, in sentences. The integers are those of the node; the sentences only say how they are
// tied together, and `recomputed` does the same sums again.

const WHY_ZERO = {
  not_in_usage: "No row of the usage names this id.",
  zero_weight: "Nothing that this id did has a weight in the policy.",
  zero_quantity: "All quantities of this id that have a weight are zero.",
  empty_pool: "There was nothing to divide.",
  below_minimum: "The share is below the minimum, so it went to the others.",
  no_units_left: "The share is below one unit, and the units left over went to larger remainders.",
};

/** A sentence for a reason, also for one that this page does not know yet. */
export const whyZero = (reason) => WHY_ZERO[reason] ?? `Reason: ${reason}.`;

/** Digits in groups of three, for people. Copies and proofs have the digits alone. */
export const grouped = (digits) => String(digits).replace(/\B(?=(\d{3})+$)/g, "\u202f");

const many = (count, word) => `${grouped(count)} ${word}${String(count) === "1" ? "" : "s"}`;

function rounding(pool) {
  const rule = pool.rounding ?? {};
  const given = rule.plus_one ? "so one unit was added" : "so none was added";
  switch (rule.rule) {
    case "largest_remainder":
      return rule.rank === undefined || rule.rank === null
        ? "It has no part in the units left over."
        : `Rounding everyone down left ${many(rule.left_over, "unit")}, which went to the largest remainders; `
          + `this one is number ${grouped(rule.rank)}, ${given}.`;
    case "floor_carry":
      return "Everyone is rounded down; what is left over is carried into the next epoch.";
    case "webster":
      return rule.rank
        ? `Rounded by the method of Webster, place ${grouped(rule.rank)} among the last units, ${given}.`
        : "Rounded by the method of Webster.";
    default:
      return "";
  }
}

/** Sentences on one pool. */
export function poolSentences(pool) {
  const says = [];
  const of = pool.group ? ` of group ${pool.group}` : "";
  const carried = pool.carried && pool.carried !== "0" ? `, ${grouped(pool.carried)} of them carried over` : "";
  says.push(`The pool${of} is ${many(pool.pool, "unit")}${carried}, for ${many(pool.actors, "actor")} with a score.`);
  for (const point of pool.points ?? []) {
    const [quantity, weight] = [grouped(point.quantity), grouped(point.weight)];
    says.push(`${point.metric}: ${quantity} at ${weight} each make ${many(point.points, "point")}.`);
  }
  says.push(`That is a score of ${grouped(pool.score)} among ${grouped(pool.total_score)}.`);
  if (pool.minimum) {
    const { minimum, is_kept: isKept, kept_actors: kept } = pool.minimum;
    says.push(isKept
      ? `The minimum of ${grouped(minimum)} is reached; ${many(kept, "actor")} share the pool.`
      : `The minimum of ${grouped(minimum)} is not reached.`);
  }
  if (pool.cap) {
    const { cap, is_capped: isCapped, capped_actors: capped } = pool.cap;
    const others = capped === 0 ? "nobody" : `${many(capped, "actor")}, not this one`;
    says.push(isCapped
      ? `The cap of ${grouped(cap)} stops it; that is so for ${many(capped, "actor")}.`
      : `The cap of ${grouped(cap)} stops ${others}.`);
  }
  const isCapped = pool.cap?.is_capped ?? false;
  if (!isCapped && pool.shared_score !== "0") {
    const [score, shared, among] = [pool.score, pool.shared_pool, pool.shared_score].map(grouped);
    says.push(`${score} × ${shared} ÷ ${among} is ${grouped(pool.floor)}, remainder ${grouped(pool.remainder)}.`);
  }
  says.push(rounding(pool));
  says.push(pool.why_zero ? whyZero(pool.why_zero) : `So this pool gives ${many(pool.amount, "unit")}.`);
  return says.filter(Boolean);
}

/** Sentences on how the amount of a correction follows from what the id should have. */
export function correctionSentences(asset) {
  const corrected = asset.correction;
  if (!corrected) {
    return [];
  }
  const says = [`This corrects an epoch: ${many(asset.amount, "unit")} are due, `
    + `${grouped(corrected.paid_before)} were paid before.`];
  if (corrected.take_back !== "0") {
    says.push(`${many(corrected.take_back, "unit")} too many are taken back.`);
  }
  if (corrected.carried !== "0") {
    says.push(`${many(corrected.carried, "unit")} too many stay for now; a later correction may take them back.`);
  }
  return says;
}

/** Sentences on what was not counted. */
export const uncountedSentences = (asset) => (asset.uncounted ?? []).map((one) => {
  const group = one.group ? ` in group ${one.group}` : "";
  return `${one.metric}: ${grouped(one.quantity)}${group} has no weight and counts nothing.`;
});

/** What the integers of a pool say that does not add up; nothing if it does. */
export function contradictions(pool) {
  const wrong = [];
  const number = (text) => BigInt(text);
  let score = 0n;
  for (const point of pool.points ?? []) {
    if (number(point.quantity) * number(point.weight) !== number(point.points)) {
      wrong.push(`${point.metric}: quantity times weight is not the points`);
    }
    score += number(point.points);
  }
  if (score !== number(pool.score)) {
    wrong.push("the points do not add up to the score");
  }
  const shares = !(pool.cap?.is_capped ?? false) && (pool.minimum?.is_kept ?? true) && number(pool.shared_score) > 0n;
  if (shares) {
    const product = number(pool.score) * number(pool.shared_pool);
    if (product / number(pool.shared_score) !== number(pool.floor)
      || product % number(pool.shared_score) !== number(pool.remainder)) {
      wrong.push("score times shared pool over shared score is not floor and remainder");
    }
  }
  if (pool.rounding?.rule === "largest_remainder") {
    const plusOne = pool.rounding.plus_one ? 1n : 0n;
    if (number(pool.floor) + plusOne !== number(pool.amount)) {
      wrong.push("floor and the unit added are not the amount");
    }
  }
  return wrong;
}
