// Count rates from the data in the page, by the run's own look-ups and rules. Changes no element of the page.

// -- intervals: Clopper-Pearson at the effective number of groups (conservative), as in the run ------------------------

function logGamma(x) {
  const series = [76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 0.001208650973866179,
    -0.000005395239384953].reduce((sum, c, i) => sum + c / (x + 1 + i), 1.000000000190015);
  return (x + 0.5) * Math.log(x + 5.5) - (x + 5.5) + Math.log((2.5066282746310002 * series) / x);
}

/** The regularised incomplete beta function, by its continued fraction. */
function betaInc(a, b, x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - betaInc(b, a, 1 - x);
  const least = 1e-300, apart = (v) => (Math.abs(v) < least ? least : v);
  let c = 1, d = 1 / apart(1 - ((a + b) * x) / (a + 1)), h = d;
  for (let m = 1; m < 500; m++) {
    for (const of of [(m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
      (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))]) {
      d = 1 / apart(1 + of * d);
      c = apart(1 + of / c);
      h *= d * c;
    }
    if (Math.abs(d * c - 1) < 1e-13) break;
  }
  return (Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) * h) / a;
}

function betaQuantile(a, b, share) {
  let low = 0, high = 1;
  for (let i = 0; i < 50; i++) {
    const middle = (low + high) / 2;
    if (betaInc(a, b, middle) < share) low = middle; else high = middle;
  }
  return (low + high) / 2;
}

/** The 95 % Clopper-Pearson interval of `hits` of `n`, which may be fractions. */
function clopperPearson(hits, n) {
  return [hits <= 0 ? 0 : betaQuantile(hits, n - hits + 1, 0.025), hits >= n ? 1 : betaQuantile(hits + 1, n - hits, 0.975)];
}

/** The effective number of groups of these sizes (Kish 1965). */
function effectiveNumber(sizes) {
  let sum = 0, squares = 0;
  for (const m of sizes) { sum += m; squares += m * m; }
  return (sum * sum) / squares;
}

// -- rates -------------------------------------------------------------------------------------------------------------

/** The outcome of every prompt at some thresholds, as an index into `run.outcomes`. */
function lookUp(run, thresholds) {
  const found = new Int16Array(run.prompts.id.length);
  for (let i = 0; i < found.length; i++) {
    const gates = [];
    for (let d = 0; d < run.dials.length; d++) {
      const p = run.read[d][i], tau = thresholds[run.dials[d]];
      gates.push(p >= tau + run.band ? "decline" : p < tau - run.band ? "permit" : "leave");
      if (gates[d] === "decline") break;
    }
    found[i] = run.outcomes.indexOf(gates.join("+"));
  }
  return found;
}

/** The action of every prompt: an index into `run.actions`, -1 where it is not judged. */
function actionsAt(run, outcome) { return Array.from(outcome, (place, i) => run.done[place][i]); }

/** The share of judged test prompts of a rate's label with its mistake, and its interval. */
function rate(run, of, actions) {
  let n = 0, k = 0;
  const sizes = new Map();
  run.prompts.part.forEach((part, i) => {
    if (part !== "test" || run.prompts.label[i] !== of.label || actions[i] < 0) return;
    n += 1;
    k += of.counts.includes(actions[i]);
    sizes.set(run.prompts.group[i], (sizes.get(run.prompts.group[i]) || 0) + 1);
  });
  if (!n) return { share: NaN, n };
  const groups = effectiveNumber(sizes.values());
  return { share: k / n, n, interval: clopperPearson((k / n) * groups, groups) };
}

/** The share of test prompts with a known answer that state it; `stated(i)` is "1" where prompt i does. */
function knownFacts(run, stated) {
  let n = 0, k = 0;
  run.prompts.part.forEach((part, i) => {
    if (part !== "test" || run.prompts.known[i] !== "1") return;
    n += 1;
    k += stated(i) === "1";
  });
  return { share: n ? k / n : NaN, n };
}

/** The right-action score of judged test prompts, as in scoring/right_action.py: the mean over right actions of the
 * credit gained, net of the constant policies on the same prompts, divided by that of a perfect policy. */
function rightAction(run, actions) {
  const of = new Map(), { rows, kind, right, credits } = run.credit;
  rows.forEach((row, i) => {
    if (actions[row] < 0) return;
    const none = () => run.actions.map(() => 0);
    if (!of.has(right[i])) of.set(right[i], { right: right[i], n: 0, gained: 0, credit: none(), taken: none() });
    const mine = of.get(right[i]), own = credits[kind[i]];
    mine.n += 1;
    mine.gained += own[actions[row]];
    mine.taken[actions[row]] += 1;
    own.forEach((credit, action) => { mine.credit[action] += credit; });
  });
  const all = [...of.values()], mean = (term) => all.reduce((sum, mine) => sum + term(mine), 0) / all.length;
  const constant = run.actions.map((_, action) => mean((mine) => mine.credit[action] / mine.n));
  const perfect = 1 - mean((mine) => constant[mine.right]);
  const net = (mine) => mine.taken.reduce((sum, times, action) => sum - times * constant[action], mine.gained) / mine.n;
  return { share: all.length > 1 && perfect >= 1e-9 ? mean(net) / perfect : NaN, n: all.reduce((sum, mine) => sum + mine.n, 0) };
}
