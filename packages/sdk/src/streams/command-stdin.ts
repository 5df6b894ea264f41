import type { StreamConnection } from './stream-connection.ts';

/** In characters. JSON may use six bytes for a character, so a message stays far below its limit of 1 MiB. */
const MAX_TEXT_LENGTH = 65_536;

/** Standard input of a {@link SpawnedCommand}. It accepts text only: bytes must be UTF-8. */
export class CommandStdin {
  readonly #connection: Pick<StreamConnection<unknown, unknown>, 'send' | 'hasEnded'>;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  #hasEnded = false;
  #sent: Promise<void> = Promise.resolve();

  /** Called by `sandbox.spawn()` only. */
  constructor(connection: Pick<StreamConnection<unknown, unknown>, 'send' | 'hasEnded'>) {
    this.#connection = connection;
  }

  /**
   * Writes text, or bytes that are UTF-8. A character may be split over two calls. Resolves when there is room for
   * more: wait for it before the next write. Rejects with `TypeError` for other bytes (upload them as a file that the
   * command reads) and after `end()`; with {@link CoppiceError} of code `closed` once the command has ended, or
   * `timeout` when the service accepted no input for the timeout of the command plus `timeoutMs`.
   *
   * @example
   * await command.stdin.write('SELECT 1;\n');
   * for await (const chunk of createReadStream('dump.sql')) await command.stdin.write(chunk);
   */
  async write(data: string | Uint8Array): Promise<void> {
    if (this.#hasEnded) throw new TypeError('stdin: write after end()');
    await this.#send(splitText(this.#decode(data)).map((text) => ({ type: 'stdin', data: text })));
  }

  /**
   * Ends the input: the command reads an end of file. A second call, or a call after the end of the command, has no
   * effect. Rejects with `TypeError` when the bytes written so far end within a character.
   *
   * @example
   * await command.stdin.end();
   */
  async end(): Promise<void> {
    if (this.#hasEnded || this.#connection.hasEnded) return;
    this.#decode('');
    this.#hasEnded = true;
    await this.#send([{ type: 'stdin_eof' }]);
  }

  async #send(messages: object[]): Promise<void> {
    this.#sent = this.#sendAfter(this.#sent, messages);
    await this.#sent;
  }

  /** Sends messages after those of earlier calls. If one fails, all later ones fail too: the input must have no gap. */
  async #sendAfter(before: Promise<void>, messages: object[]): Promise<void> {
    await before;
    for (const message of messages) await this.#connection.send(JSON.stringify(message));
  }

  /**
   * Decodes data. A string starts a new character, so the bytes before it must be complete. Throws `TypeError` for
   * bytes that are not UTF-8.
   */
  #decode(data: string | Uint8Array): string {
    try {
      if (typeof data === 'string') return this.#decoder.decode() + data;
      return this.#decoder.decode(data, { stream: true });
    } catch (cause) {
      throw new TypeError('stdin: these bytes are not UTF-8; upload them as a file that the command reads', {
        cause,
      });
    }
  }
}

/** Splits text, between characters, into pieces that fit into a message. */
function splitText(text: string): string[] {
  const pieces: string[] = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(start + MAX_TEXT_LENGTH, text.length);
    const last = text.charCodeAt(end - 1);
    // The first half of a surrogate pair would become U+FFFD.
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}
