import type { CallOptions } from '../transport/client-options.ts';
import type { Transport } from '../transport/transport.ts';
import {
  buildWireBody,
  encodeSegment,
  readArray,
  readNumber,
  readObject,
  readString,
} from '../transport/wire.ts';

const MAX_PORT = 65_535;

/** A preview: a link that gives its holder access to a port of a sandbox. Times are ISO 8601 UTC. */
export interface PreviewInfo {
  /** Id of the preview, for `sandbox.revokePreview()`. */
  id: string;
  /** Port in the sandbox, 1–65 535. */
  port: number;
  /** Time when the preview was created. */
  createdAt: string;
  /** Time when the link expires. */
  expiresAt: string;
}

/** A new preview. The service shows the link only in the answer that creates it. */
export interface Preview extends PreviewInfo {
  /**
   * The link for a browser. Treat it as a password: anyone who has it reaches the port until the preview expires or is
   * revoked.
   */
  url: string;
}

/** Options of `sandbox.preview()`. */
export interface PreviewOptions extends CallOptions {
  /** Seconds until the link expires, 60–2 592 000 (30 days). Default 3600. */
  expiresIn?: number | undefined;
}

const PREVIEW_FIELDS = { expiresIn: 'expires_in' } as const satisfies Record<
  Exclude<keyof PreviewOptions, 'signal'>,
  string
>;

/**
 * Returns the URL of a port through the service. `sandboxPath` is below `baseUrl`. `path` is used unchanged and may
 * include a query. Throws `TypeError` for an invalid port.
 */
export function buildPortUrl(baseUrl: string, sandboxPath: string, port: number, path: string): string {
  return `${baseUrl}${sandboxPath}/proxy/${requirePort(port)}/${path.replace(/^\//, '')}`;
}

/** Creates a preview of a port. Throws `TypeError` for an invalid port or an unknown option. */
export async function createPreview(
  transport: Transport,
  path: string,
  port: number,
  { signal, ...options }: PreviewOptions,
): Promise<Preview> {
  const answer = await transport.callJson(
    {
      method: 'POST',
      path: `${path}/ports/${requirePort(port)}/preview`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(buildWireBody(options, PREVIEW_FIELDS, 'preview')),
      // If the answer is lost, its link was never seen, so a retry may create another preview.
      idempotent: true,
      signal,
    },
    (value) => ({
      ...parsePreviewInfo(value),
      url: readString(readObject(value, 'the preview'), 'url'),
    }),
  );
  return answer.value;
}

/** Lists the previews of the sandbox at `path`. */
export async function listPreviews(
  transport: Transport,
  path: string,
  call: CallOptions,
): Promise<PreviewInfo[]> {
  const answer = await transport.callJson(
    { method: 'GET', path: `${path}/previews`, idempotent: true, signal: call.signal },
    (value) => readArray(value, 'the list of previews', parsePreviewInfo),
  );
  return answer.value;
}

/** Revokes a preview of the sandbox at `path`. Throws `TypeError` for an empty id. */
export async function revokePreview(
  transport: Transport,
  path: string,
  id: string,
  call: CallOptions,
): Promise<void> {
  await transport.callEmpty({
    method: 'DELETE',
    path: `${path}/previews/${encodeSegment(id, 'the preview id')}`,
    idempotent: true,
    signal: call.signal,
  });
}

function requirePort(port: number): number {
  if (Number.isInteger(port) && port >= 1 && port <= MAX_PORT) return port;
  throw new TypeError(`port must be an integer from 1 to ${MAX_PORT}, not ${String(port)}`);
}

function parsePreviewInfo(value: unknown): PreviewInfo {
  const record = readObject(value, 'the preview');
  return {
    id: readString(record, 'id'),
    port: readNumber(record, 'port'),
    createdAt: readString(record, 'created_at'),
    expiresAt: readString(record, 'expires_at'),
  };
}
