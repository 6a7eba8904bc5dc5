/** What a click in Explore changes of its query: filters, columns, parameters, the language. */

import * as address from "./address.js";
import * as answers from "./explore-answers.js";
import * as state from "./explore-state.js";
import * as lql from "./lql.js";
import * as queries from "./queries.js";
import * as sql from "./sql.js";
import { tell } from "./telling.js";

/** `isWithin`: the value is one of those of an array. */
export function filter({ view, answer }, path, value, isNot, isWithin = false) {
  const text = answers.isClickHouse(view)
    ? sql.filteredColumns(view.text, answer.columns, path, value, { isNot })
    : view.language === "sql"
      ? sql.filtered(view.text, path, value, { isNot, isWithin })
      : lql.withClause(view.text, lql.filterText(path, value, { isNot, isWithin }));
  address.change({ q: text });
  tell(isNot ? "Left out." : "Filtered.");
}

export function pickSeries({ view, seriesPath }, name) {
  if (view.language === "sql" || !seriesPath) return;
  const clause = queries.seriesClause(seriesPath, name);
  if (clause) address.change({ q: lql.withClause(view.text, clause) });
}

export function setParameter(name, value) {
  if (name === "project") state.remember(value);
  address.change(state.parameterValue(name, value));
}

/** From LQL to SQL the query comes along; there is no way back but to where it came from. */
export async function setLanguage(page, language) {
  if (language === "lql") return address.change({ lang: "", q: page.leftLql ?? "" });
  page.leftLql = page.view.text;
  return address.change({ lang: "sql", q: await page.asSql().catch(() => queries.firstSql(page.view.subQuery)) });
}

/** Show a field as a column, or no longer. */
export function toggleColumn({ columns }, text) {
  const kept = columns.filter((one) => one !== text);
  address.change({ cols: (kept.length < columns.length ? kept : [...columns, text]).join("|") });
}
