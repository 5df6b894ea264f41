/**
 * Reads the bytes of one blob and verifies them at their end. After a broken connection the download resumes where it
 * broke, a few times; the consumer sees one stream.
 */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { checkStatus } from './answer-check.ts';
import { readBody } from './body.ts';
import { discard } from './exchange.ts';
import type { Answer } from './redirects.ts';
import { RegistryFault } from './registry-fault.ts';
import type { TransferLimits } from './transfer-limits.ts';

export interface Blob {
  digest: string;
  size: number;
}

export interface BlobReaderOptions {
  /** Requests the blob with these headers. */
  request: (headers: Readonly<Record<string, string>>) => Promise<Answer>;
  limits: TransferLimits;
  hasCredentials: boolean;
  signal: AbortSignal;
}

/** Yields the last chunk before the digest is known: the data is valid only if the generator ends without an error. */
export async function* readBlob(blob: Blob, options: BlobReaderOptions): AsyncGenerator<Buffer> {
  const { limits, signal } = options;
  const hash = createHash('sha256');
  let bytes = 0;
  for (let tries = 1; bytes < blob.size || tries === 1; tries++) {
    try {
      for await (const chunk of readFrom(blob, bytes, options)) {
        hash.update(chunk);
        bytes += chunk.length;
        yield chunk;
      }
      if (bytes < blob.size) throw new RegistryFault('short', `${bytes} of ${blob.size} bytes`);
    } catch (error) {
      signal.throwIfAborted();
      await backOff(error, tries, limits, signal);
    }
  }
  if (`sha256:${hash.digest('hex')}` !== blob.digest) throw new RegistryFault('digest', blob.digest);
}

async function* readFrom(blob: Blob, offset: number, options: BlobReaderOptions): AsyncGenerator<Buffer> {
  const { limits, signal } = options;
  const answer = await options.request({
    // A server that compresses the body in transit would change its size.
    'accept-encoding': 'identity',
    ...(offset === 0 ? {} : { range: `bytes=${offset}-` }),
  });
  checkStatus(answer, offset === 0 ? [200] : [200, 206], options.hasCredentials);
  const { message, url } = answer;
  const isPart = message.statusCode === 206;
  if (isPart && message.headers['content-range']?.startsWith(`bytes ${offset}-`) !== true) {
    discard(message);
    throw new RegistryFault('status', `${url.host} answered with another range than requested`);
  }
  let toSkip = isPart ? 0 : offset;
  let left = blob.size - offset;
  for await (const chunk of readBody(message, { url, limits, signal })) {
    const fresh = chunk.subarray(toSkip);
    toSkip -= chunk.length - fresh.length;
    left -= fresh.length;
    if (left < 0) throw new RegistryFault('digest', `${blob.digest} is longer than ${blob.size} bytes`);
    if (fresh.length > 0) yield fresh;
  }
}

/** Returns when it is time to try again; throws `error` when a retry is useless. */
async function backOff(
  error: unknown,
  tries: number,
  limits: TransferLimits,
  signal: AbortSignal,
): Promise<void> {
  if (!(error instanceof RegistryFault) || tries >= limits.maxBlobTries) throw error;
  if (!error.isPassing && error.kind !== 'connect' && error.kind !== 'short') throw error;
  await pause(error, tries, limits, signal);
}

/** Waits twice as long each time, or as long as the registry requests; throws `fault` if that is too long. */
export async function pause(
  fault: RegistryFault,
  tries: number,
  limits: TransferLimits,
  signal: AbortSignal,
): Promise<void> {
  const waitMs = fault.retryAfterMs ?? limits.firstBackOffMs * 2 ** (tries - 1);
  if (waitMs > limits.maxRetryAfterMs) throw fault;
  await delay(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted());
}
