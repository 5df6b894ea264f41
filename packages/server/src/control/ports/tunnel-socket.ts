/** A TCP connection into a guest, carried by a stream of the runner. node:http uses it in place of a socket. */
import type { ClientHttp2Stream } from 'node:http2';
import { Duplex } from 'node:stream';

type Done = (error?: Error | null) => void;

export class TunnelSocket extends Duplex {
  readonly #stream: ClientHttp2Stream;
  #idleTimer: NodeJS.Timeout | undefined;

  constructor(stream: ClientHttp2Stream) {
    super({ allowHalfOpen: true });
    this.#stream = stream;
    // Between two uses the socket has no listener, and a guest's reset at that moment must not end this process.
    this.on('error', () => undefined);
    stream.on('data', (chunk: Buffer) => {
      if (this.#isResting) this.destroy();
      else if (!this.push(chunk)) stream.pause();
    });
    stream.pause();
    stream.once('end', () => {
      this.push(null);
      if (this.#isResting) this.destroy();
    });
    stream.once('error', (error) => this.destroy(error));
    // Node reports no error for a reset without an error code; for a connection it is one.
    stream.once('close', () => {
      if (stream.rstCode !== 0 || !stream.readableEnded) this.destroy(connectionReset());
    });
  }

  /**
   * Keeps the unused socket for `idleMs`, then closes it. Closes it at once if the service writes or ends meanwhile.
   */
  rest(idleMs: number): void {
    this.#idleTimer = setTimeout(() => this.destroy(), idleMs);
    this.#stream.resume();
  }

  wake(): void {
    clearTimeout(this.#idleTimer);
    this.#idleTimer = undefined;
  }

  get #isResting(): boolean {
    return this.#idleTimer !== undefined;
  }

  override _read(): void {
    this.#stream.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#stream.destroyed) done(connectionReset());
    else if (this.#stream.write(chunk)) done();
    else this.#afterDrain(done);
  }

  override _final(done: Done): void {
    this.#stream.end();
    done();
  }

  /**
   * Destroys the stream. `close()` would end the writable half first, and the service would take a part for the whole.
   */
  override _destroy(error: Error | null, done: Done): void {
    clearTimeout(this.#idleTimer);
    if (!this.#stream.closed) this.#stream.destroy(connectionReset());
    done(error);
  }

  #afterDrain(done: Done): void {
    const finish = (error?: Error): void => {
      this.#stream.off('drain', drained).off('close', closed);
      done(error);
    };
    const drained = (): void => finish();
    const closed = (): void => finish(connectionReset());
    this.#stream.once('drain', drained).once('close', closed);
  }

  // Methods that node:http calls on a net.Socket. They have no effect here: the connection is inside the guest.
  setKeepAlive(): this {
    return this;
  }
  setNoDelay(): this {
    return this;
  }
  setTimeout(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
}

function connectionReset(): Error {
  return Object.assign(new Error('the connection to the service in the sandbox was reset'), {
    code: 'ECONNRESET',
  });
}
