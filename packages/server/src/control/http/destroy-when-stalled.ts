import type { ServerResponse } from 'node:http';

/** Until it is disposed, breaks the answer off when no byte of it leaves for `stallMs`. */
export function destroyWhenStalled(raw: ServerResponse, stallMs: number): Disposable {
  const { socket } = raw;
  const stalled = (): void => void raw.destroy();
  socket?.setTimeout(stallMs).once('timeout', stalled);
  return { [Symbol.dispose]: () => void socket?.setTimeout(0).off('timeout', stalled) };
}
