import type { ServerResponse } from 'node:http';

/** Breaks off the answer when no byte of it is sent for `stallMs`, until the result is disposed. */
export function destroyWhenStalled(raw: ServerResponse, stallMs: number): Disposable {
  const { socket } = raw;
  const stalled = (): void => void raw.destroy();
  socket?.setTimeout(stallMs).once('timeout', stalled);
  return {
    [Symbol.dispose]: () => {
      socket?.off('timeout', stalled);
      // After the answer, the socket has the timeout of a connection that is kept for the next request.
      if (raw.socket === socket) socket?.setTimeout(0);
    },
  };
}
