import { CoppiceError } from '../transport/errors.ts';

/** The part of an event that the client reads. Its fields depend on its type. */
export interface WebSocketLikeEvent {
  readonly type: string;
  readonly data?: unknown;
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
  readonly error?: unknown;
}

/** The part of the standard `WebSocket` that the client uses, and the methods that the package `ws` adds to it. */
export interface WebSocketLike {
  /** The client sets it to `arraybuffer`. */
  binaryType: string;
  /** Bytes that were passed to `send()` and are not yet sent. */
  readonly bufferedAmount: number;
  /** Sends a text or binary message. */
  send(data: string | Uint8Array<ArrayBuffer>): void;
  /** Starts the closing handshake. */
  close(code?: number, reason?: string): void;
  /** Registers a listener. */
  addEventListener(
    type: 'open' | 'message' | 'error' | 'close',
    listener: (event: WebSocketLikeEvent) => void,
  ): void;
  /** Registers a listener of pings. The standard `WebSocket` answers pings without showing them. */
  on?(type: 'ping', listener: () => void): unknown;
  /** Stops reading until `resume()`, so that the sender waits. The standard `WebSocket` has no such method. */
  pause?(): void;
  /** Continues reading after `pause()`. */
  resume?(): void;
  /** Ends the connection at once, without a closing handshake. */
  terminate?(): void;
}

/** A class such as the standard `WebSocket`, or the `WebSocket` of the package `ws`. */
export type WebSocketConstructor = new (url: string) => WebSocketLike;

/**
 * Returns the class of the option, else the global one, else that of the package `ws`; Node.js 20 has no global one.
 * Throws {@link CoppiceError} with code `no_websocket` if there is none.
 */
export async function getWebSocket(
  option: WebSocketConstructor | undefined,
  importPackage: () => Promise<unknown> = importWs,
): Promise<WebSocketConstructor> {
  const { WebSocket: standard } = globalThis as { WebSocket?: WebSocketConstructor };
  const found = option ?? standard;
  if (found !== undefined) return found;
  try {
    const { WebSocket } = (await importPackage()) as { WebSocket: WebSocketConstructor };
    return WebSocket;
  } catch (cause) {
    throw new CoppiceError(
      'this runtime has no WebSocket: use Node.js >= 22, install the package ws, or pass { WebSocket } to the client',
      { status: 0, code: 'no_websocket', cause },
    );
  }
}

/** Not a literal type: compilers and bundlers for browsers must not resolve this optional package. */
const WS_PACKAGE: string = 'ws';

function importWs(): Promise<unknown> {
  return import(/* webpackIgnore: true */ /* @vite-ignore */ WS_PACKAGE);
}
