// Requests to the API that served this page, with the token that the user entered.
// The token is kept for this tab and this origin; a browser would send a cookie to
// every port of the host.

/** An error with the API's message, Status.message. code 0: no response. */
export class ApiError extends Error {
  constructor(message, code = 0, reason = "") {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

/** Fires "ended" when the API no longer accepts the token, "refused" when an action is forbidden. */
export const session = new EventTarget();

const SECOND_TRY = 250; // milliseconds
const KEPT = "monopod-token";

let token = sessionStorage.getItem(KEPT) ?? "";

let skew = 0;

/** The server's time in milliseconds: grace periods end by its clock. */
export const now = () => Date.now() + skew;

/** learnClock reads the server's time from a response; its Date has whole seconds. */
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
 * reach repeats a request without a response, as after the connection broke
 * while the machine slept. All requests of the page are idempotent.
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

/** Sets the replicas of an object of the group apps. */
export function scale(resource, obj, replicas) {
  const path = `${objectPath("/apis/apps/v1", obj)}/${resource}/${encodeURIComponent(obj.metadata.name)}/scale`;
  return send("PATCH", path, { body: json({ spec: { replicas } }), type: "application/merge-patch+json" });
}

/** The authenticated user, as a UserInfo; throws a 401 without one. */
export async function whoAmI() {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const response = await send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", { body: json(review) });
  return (await response.json()).status.userInfo;
}

/** Whether the user may do what the attributes of a SelfSubjectAccessReview describe. */
export async function mayI(resourceAttributes) {
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
  const response = await send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", { body: json(review) });
  return (await response.json()).status?.allowed === true;
}

/** Signs in with a token, which is kept if the API accepts it. */
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
