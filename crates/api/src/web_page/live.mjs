// What the pages share that show a node as it is: the token, the look each second, and how a refusal is shown.
//
// Everything the node answers is text to a page: it is put into the document as text, never as markup.

export const $ = (id) => document.getElementById(id);
const LOOK_EVERY_MS = 1000;

/** The token lives here and nowhere else. */
let token = "";
/** The timer of the next look, so that there is one at most. */
let timer;

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  node.append(...children.flat());
  return node;
}

export async function ask(path) {
  const headers = { accept: "application/json" };
  if (token) {
    headers.authorization = `Bearer ${token}`;
  }
  const response = await fetch(path, { headers, credentials: "omit", cache: "no-store", redirect: "error" });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw Object.assign(new Error(body.detail ?? `The node answers ${response.status}.`), { status: response.status });
  }
  return body;
}

/** Looks each second, once there is a token, and shows these sections; gives a function that looks at once. */
export function live(look, sections) {
  const reveal = (isAllowed) => {
    $("access").hidden = isAllowed;
    sections.forEach((id) => { $(id).hidden = !isAllowed; });
  };
  async function turn() {
    clearTimeout(timer);
    try {
      await look();
      reveal(true);
    } catch (error) {
      $("status").className = "bad";
      $("status").textContent = error.status === undefined ? "The node does not answer." : error.message;
      if (error.status === 401 || error.status === 403) {
        // Asked for a token once; without a new one there is nothing to try again.
        reveal(false);
        return;
      }
    }
    timer = setTimeout(turn, LOOK_EVERY_MS);
  }
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    token = $("token").value.trim();
    $("token").value = "";
    turn();
  });
  // A link may bring the token behind its hash, which browsers send to nobody; it does not stay in the address.
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    token = given;
    history.replaceState(null, "", location.pathname);
    turn();
  } else {
    $("token").focus();
  }
  return turn;
}
