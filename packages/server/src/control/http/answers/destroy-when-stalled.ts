import type { ServerResponse } from 'node:http';

/** Until it is disposed, breaks the answer off when no byte of it leaves for `stallMs`. */
export function destroyWhenStalled(raw: ServerResponse, stallMs: number): Disposable {
  const { socket } = raw;
  const stalled = (): void => void raw.destroy();
  socket?.setTimeout(stallMs).once('timeout', stalled);
  return {
    [Symbol.dispose]: () => {
      socket?.off('timeout', stalled);
      // After the answer it has the time limit of a connection that is kept for the next request.
      if (raw.socket === socket) socket?.setTimeout(0);
    },
  };
}
