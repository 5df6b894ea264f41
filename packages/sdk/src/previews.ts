import type { CallOptions } from './transport/client-options.ts';
import type { Transport } from './transport/transport.ts';
import {
  buildWireBody,
  encodeSegment,
  readArray,
  readNumber,
  readObject,
  readString,
} from './transport/wire.ts';

const MAX_PORT = 65_535;

/** Access to a port of a sandbox for those who hold its link. Times are ISO 8601 UTC. */
export interface PreviewInfo {
  id: string;
  port: number;
  createdAt: string;
  expiresAt: string;
}

/** A preview as it is made: only then is its link shown. */
export interface Preview extends PreviewInfo {
  /** For a browser. Whoever has it has the port, until the preview expires or is revoked. */
  url: string;
}

/** What kind of preview. */
export interface PreviewOptions extends CallOptions {
  /** Seconds for which it can be used, 60–2 592 000 (30 days). Default 3600. */
  expiresIn?: number | undefined;
}

const PREVIEW_FIELDS = { expiresIn: 'expires_in' } as const satisfies Record<
  Exclude<keyof PreviewOptions, 'signal'>,
  string
>;

/** Address of a port through the service. `sandboxPath` is below `baseUrl`; `path` may hold a query and stays as it is. */
export function buildPortUrl(baseUrl: string, sandboxPath: string, port: number, path: string): string {
  return `${baseUrl}${sandboxPath}/proxy/${requirePort(port)}/${path.replace(/^\//, '')}`;
}

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
      // A link that nobody has seen gives nobody anything.
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
