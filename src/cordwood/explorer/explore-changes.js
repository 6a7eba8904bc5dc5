/** The changes that clicks in Explore make to the query: filters, columns, parameters and language. */

import * as address from "./address.js";
import * as answers from "./explore-answers.js";
import * as state from "./explore-state.js";
import * as lql from "./lql.js";
import { tell } from "./overlays.js";
import * as queries from "./queries.js";
import * as sql from "./sql.js";

/** Filter the query by a value; `isWithin` means that the value is an element of an array. */
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

/** Switch the language. LQL is translated to SQL; SQL is not translated: switching back restores the former LQL. */
export async function setLanguage(page, language) {
  if (language === "lql") return address.change({ lang: "", q: page.leftLql ?? "" });
  page.leftLql = page.view.text;
  return address.change({ lang: "sql", q: await page.asSql().catch(() => queries.firstSql(page.view.subQuery)) });
}

/** Add a field to the columns, or remove it. */
export function toggleColumn({ columns }, text) {
  const kept = columns.filter((one) => one !== text);
  address.change({ cols: (kept.length < columns.length ? kept : [...columns, text]).join("|") });
}
