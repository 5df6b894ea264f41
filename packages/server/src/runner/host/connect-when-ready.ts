import net from 'node:net';
import { pollUntil } from '../../lib/waiting/deadline.ts';

const RETRY_MS = 2;

function tryConnect(path: string): Promise<net.Socket | undefined> {
  const attempt = Promise.withResolvers<net.Socket | undefined>();
  const socket = net.connect(path);
  const onError = (error: NodeJS.ErrnoException): void => {
    socket.destroy();
    if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED') attempt.resolve(undefined);
    else attempt.reject(error);
  };
  socket.once('error', onError);
  socket.once('connect', () => {
    socket.off('error', onError);
    attempt.resolve(socket);
  });
  return attempt.promise;
}

export interface ConnectOptions {
  step: string;
  timeoutMs: number;
  /** Throws, and so ends the wait early, when the process that should listen is gone. */
  assertAlive: () => void;
}

/** Connects to a Unix socket that a starting process is about to create. */
export function connectWhenReady(path: string, options: ConnectOptions): Promise<net.Socket> {
  return pollUntil({ step: options.step, timeoutMs: options.timeoutMs, intervalMs: RETRY_MS }, () => {
    options.assertAlive();
    return tryConnect(path);
  });
}
