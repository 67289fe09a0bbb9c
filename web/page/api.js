// Requests to the API that served this page, with the token that somebody gave us.
// The token is kept for this tab and this origin; a cookie would go to every port
// of the host.

/** What went wrong, in the words of the API: Status.message. code 0: no answer. */
export class ApiError extends Error {
  constructor(message, code = 0, reason = "") {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

/** Fires "ended" when the API does not know us any more, "refused" when we may not do what we did. */
export const session = new EventTarget();

const SECOND_TRY = 250; // milliseconds
const KEPT = "monopod-token";

let token = sessionStorage.getItem(KEPT) ?? "";

let skew = 0;

/** The server's time in milliseconds: graces end by its clock, not by ours. */
export const now = () => Date.now() + skew;

/** learnClock takes the server's time from an answer; its Date has whole seconds. */
function learnClock(response) {
  const ahead = Date.parse(response.headers.get("Date") ?? "") + 500 - Date.now();
  if (!Number.isNaN(ahead)) skew = Math.abs(ahead) < 2000 ? 0 : ahead;
}

/** Sends a request and returns its Response, or throws an ApiError. */
export async function send(method, path, { body, type = "application/json", accept = "application/json", signal } = {}) {
  const headers = { Accept: accept };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = type;
  const response = await reach(path, { method, headers, body, signal, cache: "no-store", redirect: "error" });
  learnClock(response);
  if (response.ok) return response;
  throw await problem(response, method);
}

/**
 * reach asks a second time when there is no answer, as when the connection died
 * while the machine slept. All that is sent here says what shall be, not what
 * to change, so that twice does no harm.
 */
async function reach(path, options) {
  for (let last = false; ; last = true) {
    try {
      return await fetch(path, options);
    } catch (err) {
      if (options.signal?.aborted) throw err;
      if (last) throw new ApiError("Monopod does not answer. Is it running?");
      await new Promise((resolve) => setTimeout(resolve, SECOND_TRY));
    }
  }
}

async function problem(response, method) {
  const text = await response.text().catch(() => "");
  const err = fromStatus(parse(text)) ?? new ApiError(text.trim() || response.statusText || `HTTP ${response.status}`, response.status);
  if (response.status === 401) session.dispatchEvent(new CustomEvent("ended", { detail: err }));
  if (response.status === 403 && ["DELETE", "PATCH"].includes(method)) session.dispatchEvent(new CustomEvent("refused", { detail: err }));
  return err;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The ApiError of a metav1.Status; null for anything else. */
export function fromStatus(status) {
  if (status?.kind !== "Status") return null;
  return new ApiError(status.message || status.reason || "The request failed.", status.code ?? 0, status.reason);
}

const json = (value) => JSON.stringify(value);
const objectPath = (base, obj) =>
  `${base}/namespaces/${encodeURIComponent(obj.metadata.namespace)}`;

/** Starts the deletion of exactly this pod, not of a later one of the same name. */
export function deletePod(pod, gracePeriodSeconds) {
  const path = `${objectPath("/api/v1", pod)}/pods/${encodeURIComponent(pod.metadata.name)}`;
  return send("DELETE", path, {
    body: json({
      apiVersion: "v1", kind: "DeleteOptions", gracePeriodSeconds, preconditions: { uid: pod.metadata.uid },
    }),
  });
}

/** Sets how many pods a ReplicaSet wants. */
export function scale(set, replicas) {
  const path = `${objectPath("/apis/apps/v1", set)}/replicasets/${encodeURIComponent(set.metadata.name)}/scale`;
  return send("PATCH", path, { body: json({ spec: { replicas } }), type: "application/merge-patch+json" });
}

/** Who we are to the API, as a UserInfo; throws a 401 when we are nobody. */
export async function whoAmI() {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const response = await send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", { body: json(review) });
  return (await response.json()).status.userInfo;
}

/** Whether the API lets us do what the attributes of a SelfSubjectAccessReview say. */
export async function mayI(resourceAttributes) {
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
  const response = await send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", { body: json(review) });
  return (await response.json()).status?.allowed === true;
}

/** Signs in with a token, which is kept if the API knows it. */
export async function signIn(given) {
  token = given;
  try {
    const user = await whoAmI();
    sessionStorage.setItem(KEPT, given);
    return user;
  } catch (err) {
    signOut();
    throw err.code === 401 ? new ApiError("Monopod does not know this token.", 401) : err;
  }
}

export function signOut() {
  token = "";
  sessionStorage.removeItem(KEPT);
}
