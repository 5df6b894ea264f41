/** Serves the WebSockets of sandboxes, from the upgrade to the message that says how one ended. */
import { AppError } from '@coppice/contract';
import type { WebSocket } from '@fastify/websocket';
import type { FastifyRequest } from 'fastify';
import { endOf } from './end-with-key.ts';
import { logError, toAppError } from '../answers/error-mapper.ts';
import type { RunnerClient } from '../../placement/runner-client.ts';
import type { Place } from '../../sandbox/environment/environments.ts';
import type { HttpParts } from '../parts.ts';
import { buildErrorFrame } from '../answers/stream-error.ts';
import { CLOSE, closeCodeOf, WebSocketPeer } from './web-socket-peer.ts';

export type SocketParts = Pick<HttpParts, 'sandboxes' | 'environments' | 'audit' | 'openRequests'>;

export type Fill = <T extends Place>(asked: T) => Promise<T & Place>;

/** The part of a sandbox that a socket uses. */
interface SocketGuest {
  runner: RunnerClient;
  /** Adds directory and variables of the sandbox to the request for a process. */
  fill: Fill;
}

export interface ServeSocket {
  request: FastifyRequest;
  /** Id of the sandbox. */
  id: string;
  parts: SocketParts;
  /**
   * Resolves when everything is sent. `over` aborts when the socket must end early: the client has left, its key is no
   * longer valid, or the service shuts down. After an unusable message the client receives the peer's `fault`, whatever
   * this rejects with.
   */
  run: (peer: WebSocketPeer, over: AbortSignal, guest: SocketGuest) => Promise<void>;
}

/** Serves a WebSocket. The sandbox's idle timer waits for as long as `run` takes. */
export function serveSocket(socket: WebSocket, options: ServeSocket): void {
  // Only a failure to report a failure arrives here. It ends this socket and nothing else.
  serve(new WebSocketPeer(socket), options).catch((error: unknown) => {
    logError(toAppError(error), options.request);
    socket.terminate();
  });
}

async function serve(peer: WebSocketPeer, { request, id, parts, run }: ServeSocket): Promise<void> {
  const { sandboxes, environments, openRequests } = parts;
  const { organizationId, reach } = request;
  const over = AbortSignal.any([peer.left, endOf(request, openRequests)]);
  try {
    const driver = await sandboxes.getDriver(reach, id);
    const fill: Fill = (asked) => environments.fill(driver.row, asked);
    // A sandbox that this wakes may be at another runner then.
    const work = (): Promise<void> => run(peer, over, { runner: driver.runner, fill });
    await openRequests.stream(organizationId, () => driver.use(work));
    peer.close(CLOSE.normal);
  } catch (error) {
    if (peer.left.aborted) return;
    const frame = buildErrorFrame(peer.fault ?? error, request, openRequests);
    await peer.send(JSON.stringify(frame));
    peer.close(closeCodeOf(frame.error.code), frame.data);
  }
}

interface Killable {
  kill: () => void;
}

/** Runs `task`, and kills `process` as soon as `over` aborts. */
export async function killedWhen<T>(
  over: AbortSignal,
  process: Killable,
  task: () => Promise<T>,
): Promise<T> {
  const kill = (): void => process.kill();
  over.addEventListener('abort', kill, { once: true });
  if (over.aborted) kill();
  try {
    return await task();
  } finally {
    over.removeEventListener('abort', kill);
  }
}

/** Returns the handlers that run before the upgrade, while the status can still tell the client what is wrong. */
export function beforeUpgrade({ sandboxes }: Pick<SocketParts, 'sandboxes'>): BeforeUpgrade {
  return {
    preHandler: async ({ reach, params }) => {
      const driver = await sandboxes.getDriver(reach, (params as { id: string }).id);
      await driver.wakeEarly();
    },
    handler: async () => {
      throw new AppError('invalid_request', 'this endpoint is a WebSocket: send Upgrade: websocket');
    },
  };
}

interface BeforeUpgrade {
  preHandler: (request: FastifyRequest) => Promise<void>;
  /** Refuses a request without an upgrade. */
  handler: () => Promise<never>;
}
