/** Bodies that are piped to the runner as they come. */
import { AppError, type ErrorCode } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { App } from '../app.ts';

/** Deadline of a whole body. */
export const BODY_DEADLINE_MS = 24 * 3_600_000;
/** Time for which a client may keep sending after it was answered with an error. */
const LINGER_MS = 10_000;

/** Adds routes that read their bodies themselves. */
export function addRawBodies(app: App, add: (scope: App) => void): void {
  void app.register(async (scope: App) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    add(scope);
  });
}

/** Aborts `signal` when no byte has moved for `stallMs`, in either direction. `code` is that of the error. */
export function watchForStall(
  { raw }: Pick<FastifyRequest, 'raw'>,
  stallMs: number,
  code: ErrorCode,
): Disposable & { signal: AbortSignal } {
  const controller = new AbortController();
  const stalled = () => {
    controller.abort(new AppError(code, `the upload did not move for ${stallMs / 1000} s`));
  };
  raw.socket.setTimeout(stallMs);
  raw.on('timeout', stalled);
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      raw.off('timeout', stalled);
      raw.socket.setTimeout(0);
    },
  };
}

/** Node discards what a refused client still sends, so that the client can read the answer. This sets a time limit. */
export function cutOff({ raw }: Pick<FastifyRequest, 'raw'>): void {
  if (raw.complete) return;
  const { socket } = raw;
  const timer = setTimeout(() => raw.complete || socket.destroy(), LINGER_MS).unref();
  raw.once('end', () => clearTimeout(timer));
}
