import type { CallOptions } from '../transport/client-options.ts';
import type { Transport } from '../transport/transport.ts';
import { buildWireBody, readObject, readString } from '../transport/wire.ts';

/** Options of `sandbox.files.createLink()`. */
export interface FileLinkOptions extends CallOptions {
  /** `download` allows GET and HEAD of the URL, `upload` PUT and POST. Default `download`. */
  method?: 'download' | 'upload' | undefined;
  /** Seconds until the link expires, 1–604 800 (7 days). Default 3600. */
  expiresIn?: number | undefined;
}

/** A link to a file. */
export interface FileLink {
  /** The URL. Treat it as a password. */
  url: string;
  /** Time when the link expires, ISO 8601 UTC. */
  expiresAt: string;
}

const LINK_FIELDS = { method: 'method', expiresIn: 'expires_in' } as const satisfies Record<
  Exclude<keyof FileLinkOptions, 'signal'>,
  string
>;

/** Creates a link to a file. `path` is that of the files below the base URL. Throws `TypeError` for an unknown option. */
export async function createFileLink(
  transport: Transport,
  path: string,
  file: string,
  { signal, ...options }: FileLinkOptions,
): Promise<FileLink> {
  const body = { path: file, method: 'download', ...buildWireBody(options, LINK_FIELDS, 'files.createLink') };
  const answer = await transport.callJson(
    {
      method: 'POST',
      path: `${path}/links`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      // The service stores nothing, so a link that is lost with its answer does no harm.
      idempotent: true,
      signal,
    },
    parseFileLink,
  );
  return answer.value;
}

function parseFileLink(value: unknown): FileLink {
  const link = readObject(value, 'the link');
  return { url: readString(link, 'url'), expiresAt: readString(link, 'expires_at') };
}
