import { Duplex } from 'node:stream';
import type { Socket } from 'node:net';

/**
 * A socket that accepts all writes immediately (docs/decisions/0031-runner-flow-control.md). Node.js reads nothing
 * for an HTTP/2 session while some of the session's output is unsent: two such sessions with full buffers between them
 * would wait for each other for ever. The data held here is bounded by the windows that the far end has granted.
 */
export class WillingSocket extends Duplex {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    super({ allowHalfOpen: false });
    this.#socket = socket;
    socket.on('data', (chunk) => {
      if (!this.push(chunk)) socket.pause();
    });
    socket.once('end', () => this.push(null));
    socket.once('error', (error) => this.destroy(error));
    socket.once('close', () => this.destroy());
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#socket.write(chunk);
    done();
  }

  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#socket.destroy();
    done(error);
  }
}
