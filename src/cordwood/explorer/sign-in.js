/** Keeps the key that a demo's link has behind its #, which browsers send to nobody, and goes on to the explorer. */

import { keep } from "./key.js";

const given = location.hash.slice(1);
// The key is in no entry of the tab's history from here on.
history.replaceState(null, "", location.pathname);
if (given) keep(given);
location.replace("./");
