/** Calls below `/account`, which the session cookie authorizes. The page itself never sees the cookie. */
import { fetchNoted } from './connection.ts';

const TIMEOUT_MS = 30_000;

/** A call that failed. Status 0: no answer came. */
export class AccountError extends Error {
  readonly status: number;
  /** Code of the service, as in docs/reference/errors.md; `offline` without an answer. */
  readonly code: string;

  constructor(message: string, { status, code, cause }: { status: number; code: string; cause?: unknown }) {
    super(message, { cause });
    this.status = status;
    this.code = code;
  }
}

let noteUnauthorized = (): void => undefined;

/** Sets the listener for answers that the session has ended. */
export function onUnauthorized(listener: () => void): void {
  noteUnauthorized = listener;
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Sends a call and returns the JSON of its answer; undefined if the answer has no body. */
export async function callAccount<Answer>(method: Method, path: string, body?: unknown): Promise<Answer> {
  const text = await fetchText(method, path, body);
  return (text === '' ? undefined : JSON.parse(text)) as Answer;
}

/** Reads all pages of a list. */
export async function listAccount<Item>(path: string): Promise<Item[]> {
  const items: Item[] = [];
  for (let next: string | undefined = path; next !== undefined;) {
    const response: Response = await send(next, { method: 'GET' });
    const text = await response.text();
    if (!response.ok) throw fail(response.status, text);
    items.push(...(JSON.parse(text) as Item[]));
    next = /^<\/account(\/[^>]*)>; rel="next"$/u.exec(response.headers.get('link') ?? '')?.[1];
  }
  return items;
}

/** Sends a call and returns the text of its answer. */
export async function fetchText(method: Method, path: string, body?: unknown): Promise<string> {
  // A change needs a JSON body, even an empty one.
  const content = body ?? (method === 'GET' ? undefined : {});
  const response = await send(path, {
    method,
    ...(content === undefined
      ? {}
      : { body: JSON.stringify(content), headers: { 'content-type': 'application/json' } }),
  });
  const text = await response.text();
  if (response.ok) return text;
  throw fail(response.status, text);
}

async function send(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetchNoted(`/account${path}`, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (error) {
    throw new AccountError('The service cannot be reached. Check your connection and try again.', {
      status: 0,
      code: 'offline',
      cause: error,
    });
  }
}

function fail(status: number, text: string): AccountError {
  if (status === 401) noteUnauthorized();
  return readError(status, text);
}

function readError(status: number, text: string): AccountError {
  try {
    const { error } = JSON.parse(text) as { error?: { code?: unknown; message?: unknown } };
    if (typeof error?.message === 'string')
      return new AccountError(error.message, { status, code: String(error.code) });
  } catch (error) {
    // A proxy in front of the service may answer with its own page.
    console.debug(error);
  }
  return new AccountError(`The service answered with HTTP status ${status}.`, {
    status,
    code: `http_${status}`,
  });
}
