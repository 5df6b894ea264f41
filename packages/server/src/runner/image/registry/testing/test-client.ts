import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { AppError, parseImageReference, type ErrorCode } from '@coppice/contract';
import type { RegistryCredentials } from '../../../../lib/protocol/runner-protocol.ts';
import { RegistryClient, type ImageAsk, type RegistryClientOptions } from '../registry-client.ts';

export const CREDENTIALS: RegistryCredentials = { username: 'ann', password: 'pass:word-4711' };
export const BASIC = `Basic ${Buffer.from('ann:pass:word-4711').toString('base64')}`;

/** Short limits. */
const HASTE = {
  connectTimeoutMs: 500,
  headTimeoutMs: 500,
  progressTimeoutMs: 200,
  minProgressBytes: 1000,
  firstBackOffMs: 1,
};

export function openClient(
  options: Partial<RegistryClientOptions> = {},
): RegistryClient & { [Symbol.dispose](): void } {
  const client = new RegistryClient({
    mirrors: {},
    insecureRegistries: [],
    environment: {},
    certificatesPath: '/nonexistent',
    limits: HASTE,
    ...options,
  });
  return Object.assign(client, { [Symbol.dispose]: () => client.close() });
}

export function ask(text: string, credentials?: RegistryCredentials): ImageAsk {
  return { reference: parseImageReference(text), name: text, credentials };
}

export async function getManifest(client: RegistryClient, asked: ImageAsk): Promise<string> {
  const options = { maxBytes: 10_000, signal: AbortSignal.timeout(10_000) };
  return (await client.getManifest(asked, asked.reference.tag ?? '', options)).toString('utf8');
}

export async function getBlob(
  client: RegistryClient,
  asked: ImageAsk,
  blob: { digest: string; size: number },
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of client.readBlob(asked, blob, AbortSignal.timeout(10_000))) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Asserts the error, and that neither it nor its causes hold a secret. */
export async function assertRefused(work: Promise<unknown>, code: ErrorCode, pattern: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, pattern);
    const text = inspect(error, { depth: 20, showHidden: true });
    assert.doesNotMatch(text, /w(?:ord|rong)-4711|token-4711|signature=|Bearer |Basic /u);
    return true;
  });
}
