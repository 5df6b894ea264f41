import { CoppiceError } from '../transport/errors.ts';

/** The part of an event that the client reads; which fields there are depends on its type. */
export interface WebSocketLikeEvent {
  readonly type: string;
  readonly data?: unknown;
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
  readonly error?: unknown;
}

/** The part of the standard `WebSocket` that the client uses, and what the package `ws` adds to it. */
export interface WebSocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
  addEventListener(
    type: 'open' | 'message' | 'error' | 'close',
    listener: (event: WebSocketLikeEvent) => void,
  ): void;
  /** With `resume`: makes the sender wait. The standard has nothing like it. */
  pause?(): void;
  resume?(): void;
  /** Ends the connection without asking the other side. */
  terminate?(): void;
}

/** A class such as the standard `WebSocket` or that of the package `ws`. */
export type WebSocketConstructor = new (url: string) => WebSocketLike;

/** The option, else the global, else the package `ws`: Node.js 20 has no global one. */
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
      'there is no WebSocket here: use Node.js >= 22, install the package ws, or pass { WebSocket } to the client',
      { status: 0, code: 'no_websocket', cause },
    );
  }
}

/** Not a literal: bundlers for browsers and compilers must not look for a package that need not be there. */
const WS_PACKAGE: string = 'ws';

function importWs(): Promise<unknown> {
  return import(/* webpackIgnore: true */ /* @vite-ignore */ WS_PACKAGE);
}
