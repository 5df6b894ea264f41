import type { ServerResponse } from 'node:http';

/** Breaks an answer off when its client takes nothing for so long, until it is disposed. */
export function destroyWhenStalled(raw: ServerResponse, stallMs: number): Disposable {
  const { socket } = raw;
  const stalled = (): void => void raw.destroy();
  socket?.setTimeout(stallMs).once('timeout', stalled);
  return { [Symbol.dispose]: () => void socket?.setTimeout(0).off('timeout', stalled) };
}
