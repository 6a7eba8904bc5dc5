/** Store the key after the # of a demo link, which browsers do not send to the server, and open the explorer. */

import { keep } from "./key.js";

const given = location.hash.slice(1);
// Remove the key from the tab's history.
history.replaceState(null, "", location.pathname);
if (given) keep(given);
location.replace("./");
